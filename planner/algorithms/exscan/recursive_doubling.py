"""Exclusive scan by recursive doubling."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.doubling import prefixes
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds


@algorithm("exscan", "recursive_doubling", best_for=("short",))
def recursive_doubling(group: Group) -> Rounds:
    """Exchange block sums with partners at distance 1, 2, 4, ...

    As in scan, but the first thing that comes from a lower block is the
    prefix; what comes later goes in front of it.

    Notes
    -----
    ⌈log₂ p⌉ rounds; c a rank and round.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield from prefixes(group, is_exclusive=True)
