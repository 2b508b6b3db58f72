"""Allgather, everyone to everyone at once."""

from __future__ import annotations

import numpy as np

from planner.algorithms.registry import algorithm
from planner.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("allgather", "linear")
def linear(group: Group) -> Rounds:
    """Send every block straight to every rank, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c a rank.
    """
    me = group.positions
    distance = np.arange(1, group.size)
    source = np.repeat(me[None, :], group.size - 1, axis=0).ravel()
    dest = ((me[None, :] + distance[:, None]) % group.size).ravel()
    yield Round(
        Message(source, dest, at(group.input, source), at(group.output, source)),
        Copy(me, at(group.input, me), at(group.output, me)),
    )
