"""Reduce-scatter, everything at once, combined by the owners."""

from __future__ import annotations

from collections.abc import Iterator

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds, at


@algorithm(
    "reduce_scatter_block",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside",),
    per_pair=1.0,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to its owner, all at once, nearest rank first.

    An owner combines blocks in the order they were sent: those from r - 1 down
    to 0 in front of its own, those from p - 1 down to r + 1 in front of one
    another; at last it joins the two, in rank order.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c a rank, which is
    optimal; p - 1 blocks of scratch and messages in flight a rank.
    """
    me, size = group.positions, group.size
    arrived = group.scratch_slots(size - 1)
    yield Round.of(
        Message(me, dest, at(group.input, dest), at(arrived, (distance - 1) * size + dest))
        for distance, dest in ((d, (me + d) % size) for d in range(1, size))
    )
    yield Round.of(_combinations(group, arrived))


def _combinations(group: Group, arrived: int) -> Iterator[Reduce]:
    """Combine what came over distance 1, 2, ... with what came before it."""
    me, size = group.positions, group.size
    for distance in range(1, size):
        slot = (distance - 1) * size
        below, above = me[distance:], me[: distance - 1]
        value = group.input if distance == 1 else group.output
        result = at(group.output, below)
        yield Reduce(below, at(arrived, slot + below), at(value, below), result)
        before = at(arrived, slot - size + above)
        result = at(arrived, slot + above)
        yield Reduce(above, result, before, result)
    # Rank 0 has heard from nobody below it, the last rank from nobody above.
    slot = (size - 2) * size
    first, between = me[:1], me[1:-1]
    for rank, value in ((first, group.input), (between, group.output)):
        out = at(group.output, rank)
        yield Reduce(rank, at(value, rank), at(arrived, slot + rank), out)
