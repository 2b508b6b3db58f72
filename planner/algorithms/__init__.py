"""Algorithms of every collective: importing this package registers them all."""

from collplan.planner.algorithms import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    bcast,
    exscan,
    gather,
    reduce,
    reduce_scatter_block,
    scan,
    scatter,
)
from collplan.planner.algorithms.registry import Algorithm, Registry, registry

__all__ = [
    "Algorithm",
    "Registry",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "reduce",
    "reduce_scatter_block",
    "registry",
    "scan",
    "scatter",
]
