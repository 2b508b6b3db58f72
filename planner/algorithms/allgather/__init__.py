"""Algorithms of allgather, a file each."""

from collplan.planner.algorithms.allgather import (
    bruck,
    linear,
    neighbor_exchange,
    recursive_doubling,
    ring,
)

__all__ = ["bruck", "linear", "neighbor_exchange", "recursive_doubling", "ring"]
