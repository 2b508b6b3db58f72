"""Rabenseifner's allreduce: halve vectors, then double them back."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.building_blocks.halving import allgather, reduce_scatter
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds


@algorithm("allreduce", "rabenseifner", parts="power_of_two", next_best_for=("long",))
def rabenseifner(group: Group) -> Rounds:
    """Reduce-scatter by recursive halving, then allgather by recursive doubling.

    Notes
    -----
    2·log₂ p rounds for powers of two, two more else; 2(p - 1)/p·c a rank for
    powers of two.

    References
    ----------
    Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    folding = fold(group.size)
    yield folding.fold(group)
    yield from reduce_scatter(group, folding)
    yield from allgather(group, folding)
    yield folding.unfold(group)
