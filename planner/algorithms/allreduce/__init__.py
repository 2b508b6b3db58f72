"""Algorithms of allreduce, a file each."""

from planner.algorithms.allreduce import rabenseifner, recursive_doubling, reduce_bcast, ring

__all__ = ["rabenseifner", "recursive_doubling", "reduce_bcast", "ring"]
