"""Allreduce on a circulant graph."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.circulant import allgather, reduce_scatter
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds, at


@algorithm("allreduce", "circulant", parts="size", commutative_only=True)
def circulant(group: Group) -> Rounds:
    """Reduce-scatter by halves, then allgather the same way back, for any number of ranks.

    Partial results lie where they belong in the receive buffer, wrapped
    around its end, so nothing is rotated afterwards.

    Notes
    -----
    2·⌈log₂ p⌉ rounds and 2(p - 1)/p·c a rank for any p: the bytes are optimal.

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 2.
    """
    size, out = group.size, group.output
    yield from reduce_scatter(group, lambda rank, slot, n: at(out, (rank + slot) % size, n))
    yield from allgather(group)
