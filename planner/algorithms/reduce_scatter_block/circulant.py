"""Reduce-scatter on a circulant graph."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.circulant import reduce_scatter
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds, at


@algorithm("reduce_scatter_block", "circulant", commutative_only=True, best_for=("short",))
def circulant(group: Group) -> Rounds:
    """Fold the blocks still held in half in every round, for any number of ranks.

    With skip s, rank r sends its partial blocks for ranks r + s onwards to
    r + s, which needs them for the same ranks, now counted from itself.

    Notes
    -----
    ⌈log₂ p⌉ rounds for any p and (p - 1)·c a rank: both optimal.

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 1.
    """
    partial = group.rotated_scratch()
    yield from reduce_scatter(group, lambda rank, slot, n: at(partial, slot, n))
