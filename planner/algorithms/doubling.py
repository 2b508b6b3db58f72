"""Prefixes by partners at distance 1, 2, 4, ...: shared by scan and exscan."""

from __future__ import annotations

import numpy as np

from planner.chunks import Ints
from planner.rounds import Copy, Group, Message, Reduce, Round, Rounds, ceil_log2


def last_exchange(me: Ints, size: int) -> Ints:
    """Return the last level k at which each position's partner ``me ^ 2**k`` exists.

    Examples
    --------
    >>> last_exchange(np.arange(6), 6).tolist()
    [2, 2, 1, 1, 2, 2]
    """
    last = np.full_like(me, -1)
    for level in range(ceil_log2(size)):
        last[(me ^ (1 << level)) < size] = level
    return last


def prefixes(group: Group, *, is_exclusive: bool) -> Rounds:
    """Put what comes from lower blocks in front of every position's output.

    Everyone keeps the sum of its aligned block. An inclusive prefix begins as
    the position's own input, which must be in its output already; an
    exclusive one as the first thing that comes from below.
    """
    size, vector, out = group.size, group.whole, group.output
    block, incoming = group.scratch_slots(1), group.scratch_slots(1)
    has_prefix = np.full(size, not is_exclusive)
    for level in range(ceil_log2(size)):
        me = group.positions
        me = me[(me ^ (1 << level)) < size]
        partner = me ^ (1 << level)
        value = group.input if level == 0 else block
        sends_on = last_exchange(me, size) > level
        above = me[me > partner]
        later = has_prefix[above]
        # Prefixes come last: in place, they overwrite the input that blocks still need.
        yield Round(
            Message(me, partner, vector(value), vector(incoming)),
            Reduce(me[sends_on & (me > partner)], vector(incoming), vector(value), vector(block)),
            Reduce(me[sends_on & (me < partner)], vector(value), vector(incoming), vector(block)),
            Copy(above[~later], vector(incoming), vector(out)),
            Reduce(above[later], vector(incoming), vector(out), vector(out)),
        )
        has_prefix[above] = True
