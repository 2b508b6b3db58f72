"""Allgather around a ring."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "allgather",
    "ring",
    best_for=("long",),
    streams=True,
    pipelines=("across",),
    per_pair=1.0,
    forwards=True,
)
def ring(group: Group) -> Rounds:
    """Pass every block once around the ring.

    Notes
    -----
    p - 1 rounds; (p - 1)·c a rank, which is optimal. LogGP:
    (p - 1)·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for step in range(size - 1):
        block = (me - step) % size
        read = at(group.input if step == 0 else group.output, block)
        yield Round(Message(me, (me + 1) % size, read, at(group.output, block)))
