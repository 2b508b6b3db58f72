"""Algorithms of bcast, a file each."""

from collplan.planner.algorithms.bcast import (
    binary,
    binomial,
    chain,
    knomial,
    linear,
    scatter_allgather,
)

__all__ = ["binary", "binomial", "chain", "knomial", "linear", "scatter_allgather"]
