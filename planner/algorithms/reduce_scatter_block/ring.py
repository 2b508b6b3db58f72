"""Reduce-scatter around a ring."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at


@algorithm(
    "reduce_scatter_block",
    "ring",
    commutative_only=True,
    best_for=("long",),
    streams=True,
    pipelines=("across",),
    per_pair=1.0,
    forwards=True,
)
def ring(group: Group) -> Rounds:
    """Pass every block's partial result once around the ring to its owner.

    Notes
    -----
    p - 1 rounds; (p - 1)·c a rank, which is optimal; reductions spread evenly.

    References
    ----------
    Patarasuk, Yuan 2009: the first half of the ring allreduce.
    """
    me, size = group.positions, group.size
    partial = group.scratch_slots(2)
    for step in range(size - 1):
        chunk = (me - 1 - step) % size
        read = at(group.input, chunk) if step == 0 else at(partial, step % 2 * size + chunk)
        write = (
            at(group.output, chunk)
            if step == size - 2
            else at(partial, (step + 1) % 2 * size + chunk)
        )
        yield Round(
            Message(
                me,
                (me + 1) % size,
                read,
                write,
                combine=at(group.input, chunk),
                incoming_left=True,
            )
        )
