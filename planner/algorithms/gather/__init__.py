"""Algorithms of gather, a file each."""

from collplan.planner.algorithms.gather import binomial, chain, linear

__all__ = ["binomial", "chain", "linear"]
