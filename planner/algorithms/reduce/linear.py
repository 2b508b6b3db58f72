"""Reduce, everyone to the root: a star."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds


@algorithm("reduce", "linear", tree="any", streams=True, pipelines=("inside",))
def linear(group: Group) -> Rounds:
    """Send every vector to the root, which combines outwards from its own.

    Notes
    -----
    p - 1 rounds, as the root receives one at a time; (p - 1)·c enter the root
    and it computes all of (p - 1)·c.
    """
    root = group.root
    # Nearest first on either side keeps the operands in rank order.
    sources = np.concatenate((np.arange(root)[::-1], np.arange(root + 1, group.size)))
    value = np.where(np.arange(group.size - 1) == 0, group.input, group.output)
    yield Round(
        Message(
            sources,
            root,
            group.whole(group.input),
            group.whole(group.output),
            combine=group.whole(value),
            incoming_left=sources < root,
        )
    )
