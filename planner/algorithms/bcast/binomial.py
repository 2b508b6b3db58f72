"""Broadcast down a binomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("bcast", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Double the number of holders in every round, farthest ranks first.

    ::

        0 ------> 4        round 0
        0 -> 2    4 -> 6   round 1
        0>1  2>3  4>5      round 2   (7 ranks)

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; the root sends ⌈log₂ p⌉·c. LogGP:
    ⌈log₂ p⌉·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    vector = group.whole(group.output)
    for level in reversed(range(ceil_log2(group.size))):
        span = 1 << level
        sending = np.arange(0, group.size - span, 2 * span)
        yield Round(
            Message(group.from_root(sending), group.from_root(sending + span), vector, vector)
        )
