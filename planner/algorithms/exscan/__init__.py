"""Algorithms of exscan, a file each."""

from collplan.planner.algorithms.exscan import binomial, chain, recursive_doubling

__all__ = ["binomial", "chain", "recursive_doubling"]
