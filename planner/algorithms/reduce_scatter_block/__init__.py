"""Algorithms of reduce_scatter_block, a file each."""

from collplan.planner.algorithms.reduce_scatter_block import (
    circulant,
    linear,
    pairwise,
    recursive_halving,
    ring,
)

__all__ = ["circulant", "linear", "pairwise", "recursive_halving", "ring"]
