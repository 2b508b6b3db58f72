"""Allreduce around a ring."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at


@algorithm(
    "allreduce",
    "ring",
    parts="size",
    commutative_only=True,
    best_for=("long",),
    streams=True,
    pipelines=("inside", "across"),
    per_pair=2.0,
    forwards=True,
)
def ring(group: Group) -> Rounds:
    """Reduce-scatter around the ring, then pass the results around it.

    Notes
    -----
    2(p - 1) rounds; 2(p - 1)/p·c a rank, which is optimal. LogGP:
    2(p - 1)·(2o + L + (c/p - 1)·G) and (p - 1)/p·c reductions.

    References
    ----------
    Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", J. Parallel Distrib. Comput. 69, 2009.
    """
    me, size = group.positions, group.size
    for step in range(size - 1):
        chunk = (me - step) % size
        yield Round(
            Message(
                me,
                (me + 1) % size,
                at(group.input if step == 0 else group.output, chunk),
                at(group.output, chunk),
                combine=at(group.input, chunk),
                incoming_left=True,
            )
        )
    for step in range(size - 1):
        result = at(group.output, (me + 1 - step) % size)
        yield Round(Message(me, (me + 1) % size, result, result))
