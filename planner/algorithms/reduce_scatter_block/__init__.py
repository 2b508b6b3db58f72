"""Algorithms of reduce_scatter_block, a file each."""

from planner.algorithms.reduce_scatter_block import circulant, pairwise, recursive_halving, ring

__all__ = ["circulant", "pairwise", "recursive_halving", "ring"]
