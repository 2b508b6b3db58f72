"""Algorithms of reduce, a file each."""

from collplan.planner.algorithms.reduce import binomial, chain, linear, rabenseifner

__all__ = ["binomial", "chain", "linear", "rabenseifner"]
