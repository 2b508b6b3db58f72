"""Barrier by recursive doubling."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("barrier", "recursive_doubling")
def recursive_doubling(group: Group) -> Rounds:
    """Exchange signals with partners at distance 1, 2, 4, ...; surplus ranks fold.

    Notes
    -----
    log₂ p rounds for powers of two, ⌊log₂ p⌋ + 2 else; empty messages.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    folding = fold(group.size)
    yield Round(Message(folding.folded, folding.hosts, ordered=True))
    me = np.arange(folding.n_survivors)
    for level in range(floor_log2(folding.n_survivors)):
        partner = folding.survivors[me ^ (1 << level)]
        yield Round(Message(folding.survivors, partner, ordered=True))
    yield Round(Message(folding.hosts, folding.folded, ordered=True))
