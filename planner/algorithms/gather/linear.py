"""Gather, everyone to the root: a star."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "gather",
    "linear",
    tree="any",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
)
def linear(group: Group) -> Rounds:
    """Send every block straight to the root.

    Notes
    -----
    p - 1 rounds, as the root receives one at a time; every rank sends its c.
    """
    me, root = group.others, group.root
    yield Round(
        Message(me, root, at(group.input, me), at(group.output, me)),
        Copy(root, at(group.input, root), at(group.output, root)),
    )
