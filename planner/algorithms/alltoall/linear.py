"""Alltoall, everything at once: scatter-destination."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "alltoall",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
    per_pair=1.0,
    at_once=True,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to its rank, all at once, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c a rank; p - 1
    messages in flight a rank.

    References
    ----------
    Tran et al., "OHIO", 2024: scatter-destination.
    """
    me, size = group.positions, group.size
    yield Round.of(
        Message(me, dest, at(group.input, dest), at(group.output, me))
        for dest in ((me + distance) % size for distance in range(1, size))
    )
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
