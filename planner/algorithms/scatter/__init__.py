"""Algorithms of scatter, a file each."""

from collplan.planner.algorithms.scatter import binomial, chain, linear

__all__ = ["binomial", "chain", "linear"]
