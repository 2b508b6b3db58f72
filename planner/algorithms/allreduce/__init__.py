"""Algorithms of allreduce, a file each."""

from collplan.planner.algorithms.allreduce import (
    circulant,
    linear,
    rabenseifner,
    recursive_doubling,
    reduce_bcast,
    ring,
)

__all__ = ["circulant", "linear", "rabenseifner", "recursive_doubling", "reduce_bcast", "ring"]
