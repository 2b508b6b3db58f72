"""Reduce-scatter by pairwise exchange."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds, at


@algorithm(
    "reduce_scatter_block",
    "pairwise",
    next_best_for=("short", "long"),
    streams=True,
    per_pair=1.0,
)
def pairwise(group: Group) -> Rounds:
    """Send every block straight to its owner, one partner a round.

    In round t rank r hears from r - t: first from r - 1 down to 0, in front of
    what it has, then from p - 1 down to r + 1, in front of what came from
    above; the two halves are joined at the end, in rank order.

    Notes
    -----
    p - 1 rounds; (p - 1)·c a rank; all reductions of a block at its owner.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    above = group.scratch_slots(1)
    for step in range(1, size):
        dest = (me + step) % size
        wraps = me > dest  # arrives at a lower rank: the half above the owner
        first_above = wraps & (me == size - 1)
        below, fresh, more = me[~wraps], me[first_above], me[wraps & ~first_above]
        to = dest
        yield Round(
            Message(
                below,
                to[below],
                at(group.input, to[below]),
                at(group.output, to[below]),
                combine=at(group.input if step == 1 else group.output, to[below]),
                incoming_left=True,
            ),
            Message(fresh, to[fresh], at(group.input, to[fresh]), at(above, to[fresh])),
            Message(
                more,
                to[more],
                at(group.input, to[more]),
                at(above, to[more]),
                combine=at(above, to[more]),
                incoming_left=True,
            ),
        )
    joins = me[:-1]
    left = at(np.where(joins == 0, group.input, group.output), joins)
    yield Round(Reduce(joins, left, at(above, joins), at(group.output, joins)))
