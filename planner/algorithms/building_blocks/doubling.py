"""Prefixes by partners at distance 1, 2, 4, ...: shared by scan and exscan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.rounds import Copy, Group, Message, Reduce, Round, Rounds
from collplan.planner.arrays.logarithms import ceil_log2

Bools = npt.NDArray[np.bool_]


def useful_messages(size: int) -> Bools:
    """Return, level by level (rows), whose message to its partner ``me ^ 2**k`` is of use.

    One to a higher rank is: it becomes part of its prefix. One to a lower rank
    is where that rank has a useful message to send afterwards.

    Examples
    --------
    >>> [np.flatnonzero(useful).tolist() for useful in useful_messages(4)]
    [[0, 1, 2], [0, 1]]
    """
    me = np.arange(size)
    sends_on = np.zeros(size, dtype=bool)
    levels = np.zeros((ceil_log2(size), size), dtype=bool)
    for level in reversed(range(ceil_log2(size))):
        partner = me ^ (1 << level)
        exists = partner < size
        useful = exists & ((partner > me) | sends_on[np.where(exists, partner, 0)])
        sends_on |= useful
        levels[level] = useful
    return levels


def prefixes(group: Group, *, is_exclusive: bool) -> Rounds:
    """Put what comes from lower blocks in front of every position's output.

    Everyone keeps the sum of its aligned block. An inclusive prefix begins as
    the position's own input, which must be in its output already; an
    exclusive one as the first thing that comes from below.
    """
    vector, out = group.whole, group.output
    block, incoming = group.scratch_slots(1), group.scratch_slots(1)
    has_prefix = np.full(group.size, not is_exclusive)
    useful = useful_messages(group.size)
    for level, sending in enumerate(useful):
        source = np.flatnonzero(sending)
        dest = source ^ (1 << level)
        above, below = dest[dest > source], dest[dest < source]
        # Who sends on later keeps the sum of the block that has grown.
        grows = np.logical_or.reduce(useful[level + 1 :], axis=0, initial=False)
        value = group.input if level == 0 else block
        later = has_prefix[above]
        # Prefixes come last: in place, they overwrite the input that blocks still need.
        yield Round(
            Message(source, dest, vector(value), vector(incoming)),
            Reduce(above[grows[above]], vector(incoming), vector(value), vector(block)),
            Reduce(below, vector(value), vector(incoming), vector(block)),
            Copy(above[~later], vector(incoming), vector(out)),
            Reduce(above[later], vector(incoming), vector(out), vector(out)),
        )
        has_prefix[above] = True
