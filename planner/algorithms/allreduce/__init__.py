"""Algorithms of allreduce, a file each."""

from planner.algorithms.allreduce import (
    circulant,
    rabenseifner,
    recursive_doubling,
    reduce_bcast,
    ring,
)

__all__ = ["circulant", "rabenseifner", "recursive_doubling", "reduce_bcast", "ring"]
