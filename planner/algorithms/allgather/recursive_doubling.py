"""Allgather by recursive doubling."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("allgather", "recursive_doubling", power_of_two_only=True)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange everything held with partners at distance 1, 2, 4, ...

    Notes
    -----
    log₂ p rounds for powers of two; (p - 1)·c a rank.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005; the hypercube of Hartmann et al. 2006.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for level in range(floor_log2(size)):
        span = 1 << level
        first = me // span * span
        read = at(group.input if level == 0 else group.output, first, span)
        yield Round(Message(me, me ^ span, read, at(group.output, first, span)))
