"""Scan by recursive doubling."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.doubling import prefixes
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Round, Rounds


@algorithm("scan", "recursive_doubling", best_for=("short",))
def recursive_doubling(group: Group) -> Rounds:
    """Exchange block sums with partners at distance 1, 2, 4, ...

    Everyone keeps the sum of its aligned block; what comes from a lower block
    also goes in front of the rank's own prefix.

    Notes
    -----
    ⌈log₂ p⌉ rounds; c a rank and round.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield Round(Copy(group.positions, group.whole(group.input), group.whole(group.output)))
    yield from prefixes(group, is_exclusive=False)
