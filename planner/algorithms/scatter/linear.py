"""Scatter, the root to everyone: a star."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "scatter",
    "linear",
    tree="any",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
)
def linear(group: Group) -> Rounds:
    """Send every block straight from the root.

    Notes
    -----
    p - 1 rounds, as the root sends one at a time; (p - 1)·c leave the root.
    """
    dest, root = group.others, group.root
    yield Round(
        Message(root, dest, at(group.input, dest), at(group.output, dest)),
        Copy(root, at(group.input, root), at(group.output, root)),
    )
