"""Algorithms of bcast, a file each."""

from planner.algorithms.bcast import binary, binomial, chain, knomial, linear, scatter_allgather

__all__ = ["binary", "binomial", "chain", "knomial", "linear", "scatter_allgather"]
