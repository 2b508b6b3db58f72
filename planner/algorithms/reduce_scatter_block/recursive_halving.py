"""Reduce-scatter by recursive halving."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("reduce_scatter_block", "recursive_halving", power_of_two_only=True)
def recursive_halving(group: Group) -> Rounds:
    """Exchange half of the blocks still held, with ever nearer partners.

    A non-commutative operation begins with the nearest partners instead, and
    the blocks of one message are then every 2nd, 4th, 8th...: strided.

    Notes
    -----
    log₂ p rounds for powers of two, (p - 1)·c a rank: both optimal.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    levels = floor_log2(size)
    partial = group.packed_scratch()
    for step in range(levels):
        level = levels - 1 - step if group.commutative else step
        partner = me ^ (1 << level)
        if group.commutative:
            first = partner >> level << level
            blocks = {"n": 1 << level}
        else:
            first = partner & ((2 << level) - 1)
            blocks = {"stride": 2 << level, "repeat": size >> (level + 1)}
        value = group.input if step == 0 else partial
        last = step == levels - 1
        write = at(group.output, first) if last else at(partial, first, **blocks)
        yield Round(
            Message(
                me,
                partner,
                at(value, first, **blocks),
                write,
                combine=at(value, first, **blocks),
                incoming_left=me < partner,
            )
        )
