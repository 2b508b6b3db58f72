"""Alltoall by pairwise exchange."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "alltoall",
    "pairwise",
    best_for=("long",),
    next_best_for=("short",),
    streams=True,
    per_pair=1.0,
    at_once=True,
)
def pairwise(group: Group) -> Rounds:
    """Exchange with one partner a round: XOR on powers of two, else right and left.

    Notes
    -----
    p - 1 rounds; (p - 1)·c a rank. LogGP: (p - 1)·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    is_power_of_two = size & (size - 1) == 0
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for step in range(1, size):
        dest = me ^ step if is_power_of_two else (me + step) % size
        yield Round(Message(me, dest, at(group.input, dest), at(group.output, me)))
