"""Scan by recursive doubling."""

from __future__ import annotations

from planner.algorithms.doubling import last_exchange
from planner.algorithms.registry import algorithm
from planner.rounds import Copy, Group, Message, Reduce, Round, Rounds, ceil_log2


@algorithm("scan", "recursive_doubling")
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
    size = group.size
    vector, out = group.whole, group.output
    block, incoming = group.scratch_slots(1), group.scratch_slots(1)
    yield Round(Copy(group.positions, vector(group.input), vector(out)))
    for level in range(ceil_log2(size)):
        span = 1 << level
        me = group.positions
        me = me[(me ^ span) < size]
        partner = me ^ span
        value = group.input if level == 0 else block
        above = me[me > partner]
        sends_on = last_exchange(me, size) > level
        # The result comes last: in place, it overwrites the input the block still needs.
        yield Round(
            Message(me, partner, vector(value), vector(incoming)),
            Reduce(me[sends_on & (me > partner)], vector(incoming), vector(value), vector(block)),
            Reduce(me[sends_on & (me < partner)], vector(value), vector(incoming), vector(block)),
            Reduce(above, vector(incoming), vector(out), vector(out)),
        )
