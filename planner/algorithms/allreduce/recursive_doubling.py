"""Allreduce by recursive doubling."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("allreduce", "recursive_doubling", best_for=("short",))
def recursive_doubling(group: Group) -> Rounds:
    """Exchange and combine whole vectors with partners at distance 1, 2, 4, ...

    Surplus ranks fold into a neighbour and get the result at the end.

    Notes
    -----
    log₂ p rounds for powers of two, ⌊log₂ p⌋ + 2 else; c a rank and round: best
    for short vectors.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    folding = fold(group.size)
    yield folding.fold(group)
    me = np.arange(folding.n_survivors)
    combined = me < len(folding.folded)
    for level in range(floor_log2(folding.n_survivors)):
        partner = me ^ (1 << level)
        value = np.where(combined, group.output, group.input)
        yield Round(
            Message(
                folding.survivors[me],
                folding.survivors[partner],
                group.whole(value),
                group.whole(group.output),
                combine=group.whole(value[partner]),
                incoming_left=me < partner,
            )
        )
        combined = np.ones_like(combined)
    yield folding.unfold(group)
