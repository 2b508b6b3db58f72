"""Algorithms of barrier, a file each."""

from collplan.planner.algorithms.barrier import dissemination, recursive_doubling

__all__ = ["dissemination", "recursive_doubling"]
