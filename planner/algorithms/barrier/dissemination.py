"""Barrier by dissemination."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("barrier", "dissemination", best_for=("short",))
def dissemination(group: Group) -> Rounds:
    """Signal the rank 2^k ahead in round k.

    Notes
    -----
    ⌈log₂ p⌉ rounds for any p, which is optimal; empty messages.

    References
    ----------
    Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
    Int. J. Parallel Program. 17, 1988.
    """
    me, size = group.positions, group.size
    for level in range(ceil_log2(size)):
        yield Round(Message(me, (me + (1 << level)) % size, ordered=True))
