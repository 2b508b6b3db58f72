"""Allreduce, everything at once: every rank combines a part and tells everybody."""

from __future__ import annotations

from collplan.planner.algorithms.reduce_scatter_block.linear import linear as reduce_scatter
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at


@algorithm("allreduce", "linear", parts="size", best_for=("shared",), streams=True, per_pair=2.0)
def linear(group: Group) -> Rounds:
    """Send every part straight to the rank that combines it, which sends it to all.

    Notes
    -----
    2(p - 1) rounds, as a rank sends one at a time; 2(p - 1)/p·c a rank, which
    is optimal; (p - 1)/p·c of scratch. Operands are combined in rank order.
    Through shared memory every rank copies its vector there once, but for its
    own part, and reads p - 1 operands and then p - 1 results in place.
    """
    yield from reduce_scatter(group)
    me, size = group.positions, group.size
    part = at(group.output, me)
    yield Round.of(Message(me, (me + d) % size, part, part) for d in range(1, size))
