"""Algorithms of scan, a file each."""

from collplan.planner.algorithms.scan import binomial, chain, recursive_doubling

__all__ = ["binomial", "chain", "recursive_doubling"]
