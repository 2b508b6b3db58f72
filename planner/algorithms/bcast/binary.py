"""Broadcast down a complete binary tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("bcast", "binary", tree="any", streams=True)
def binary(group: Group) -> Rounds:
    """Send down a complete binary tree: node v to 2v + 1, then to 2v + 2.

    Notes
    -----
    At most 2⌊log₂ p⌋ rounds; no rank sends more than 2c, so it pipelines better
    than the binomial tree.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007.
    """
    vector = group.whole(group.output)
    for depth in range(floor_log2(group.size)):
        parents = np.arange((1 << depth) - 1, (2 << depth) - 1)
        for child in (1, 2):
            sending = parents[2 * parents + child < group.size]
            yield Round(
                Message(
                    group.from_root(sending),
                    group.from_root(2 * sending + child),
                    vector,
                    vector,
                )
            )
