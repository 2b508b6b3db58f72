"""Exclusive scan by recursive doubling."""

from __future__ import annotations

import numpy as np

from planner.algorithms.doubling import last_exchange
from planner.algorithms.registry import algorithm
from planner.rounds import Copy, Group, Message, Reduce, Round, Rounds, ceil_log2


@algorithm("exscan", "recursive_doubling")
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
    size = group.size
    vector, out = group.whole, group.output
    block, incoming = group.scratch_slots(1), group.scratch_slots(1)
    has_prefix = np.zeros(size, dtype=bool)
    for level in range(ceil_log2(size)):
        span = 1 << level
        me = group.positions
        me = me[(me ^ span) < size]
        partner = me ^ span
        value = group.input if level == 0 else block
        above = me[me > partner]
        sends_on = last_exchange(me, size) > level
        yield Round(
            Message(me, partner, vector(value), vector(incoming)),
            Reduce(me[sends_on & (me > partner)], vector(incoming), vector(value), vector(block)),
            Reduce(me[sends_on & (me < partner)], vector(value), vector(incoming), vector(block)),
            Copy(above[~has_prefix[above]], vector(incoming), vector(out)),
            Reduce(above[has_prefix[above]], vector(incoming), vector(out), vector(out)),
        )
        has_prefix[above] = True
