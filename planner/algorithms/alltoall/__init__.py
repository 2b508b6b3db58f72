"""Algorithms of alltoall, a file each."""

from collplan.planner.algorithms.alltoall import bruck, linear, pairwise

__all__ = ["bruck", "linear", "pairwise"]
