"""Allgather, everyone to everyone at once."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "allgather",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside",),
    per_pair=1.0,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to every rank, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c a rank.
    """
    me, size = group.positions, group.size
    block = at(group.input, me), at(group.output, me)
    yield Round.of(Message(me, (me + distance) % size, *block) for distance in range(1, size))
    yield Round(Copy(me, *block))
