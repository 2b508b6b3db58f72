"""Bruck's allgather."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("allgather", "bruck", best_for=("short",))
def bruck(group: Group) -> Rounds:
    """Double the run of blocks everyone holds, for any number of ranks.

    Runs lie where they belong in the receive buffer, wrapped around its end,
    so nothing is rotated afterwards.

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; (p - 1)·c a rank, which is, too.

    References
    ----------
    Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
    communications in multiport message-passing systems", IEEE TPDS 8, 1997.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for level in range(ceil_log2(size)):
        span = 1 << level
        n = min(span, size - span)
        read = at(group.input, me) if level == 0 else at(group.output, me, n)
        yield Round(Message(me, (me - span) % size, read, at(group.output, me, n)))
