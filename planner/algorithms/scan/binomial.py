"""Scan up and down a binomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("scan", "binomial", streams=True)
def binomial(group: Group) -> Rounds:
    """Sum up a binomial tree, then hand prefixes down it.

    ::

        0>1  2>3  4>5  6>7     up: 1, 3, 5, 7 hold pairs
             1---->3  5---->7  up: 3 and 7 hold fours
                   3-------->7 up: 7 holds all
                   3---->5     down
             1>2   3>4   5>6   down

    Notes
    -----
    At most 2·⌈log₂ p⌉ - 1 rounds; fewer reductions in all than recursive
    doubling: at most 2p instead of about p·log₂ p.

    References
    ----------
    Brent, Kung, "A regular layout for parallel adders", IEEE Trans. Comput.
    C-31, 1982.
    """
    yield from prefixes(group, group.output, group.size)


def prefixes(group: Group, result: int, size: int) -> Rounds:
    """Leave the inclusive prefix of every position below `size` in space `result`."""
    vector = group.whole
    me = np.arange(0, size, 2)
    yield Round(Copy(me, vector(group.input), vector(result)))
    levels = floor_log2(size)
    for level in range(levels):
        span = 1 << level
        dest = np.arange(2 * span - 1, size, 2 * span)
        value = group.input if level == 0 else result
        yield Round(
            Message(
                dest - span,
                dest,
                vector(value),
                vector(result),
                combine=vector(value),
                incoming_left=True,
            )
        )
    # An odd rank that heard nobody on the way up does not exist: rank - 1 is always there.
    for level in reversed(range(levels)):
        span = 1 << level
        dest = np.arange(3 * span - 1, size, 2 * span)
        yield Round(
            Message(
                dest - span,
                dest,
                vector(result),
                vector(result),
                combine=vector(result),
                incoming_left=True,
            )
        )
