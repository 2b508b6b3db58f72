"""Algorithms of allgather, a file each."""

from planner.algorithms.allgather import bruck, linear, neighbor_exchange, recursive_doubling, ring

__all__ = ["bruck", "linear", "neighbor_exchange", "recursive_doubling", "ring"]
