"""Allgather by exchange with both neighbours in turn."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("allgather", "neighbor_exchange", even_only=True, per_pair=0.5, forwards=True)
def neighbor_exchange(group: Group) -> Rounds:
    """Exchange pairs of blocks with the left and the right neighbour in turn.

    ::

        0 <> 1    2 <> 3    own blocks
        0    1 <> 2    3    the pair just received; 0 <> 3 around the end
        0 <> 1    2 <> 3    and so on

    Notes
    -----
    p/2 rounds for an even number of ranks; (p - 1)·c a rank, all of it between
    neighbours.

    References
    ----------
    Chen, Zhang, Zhang, Yuan, "Performance evaluation of allgather algorithms
    on terascale Linux cluster with fast Ethernet", HPC Asia 2005.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    if size == 1:
        return
    own = at(group.input, me)
    yield Round(Message(me, me ^ 1, own, at(group.output, me)))
    even = me % 2 == 0
    held = me - me % 2  # first block of the pair a rank sends next
    for step in range(1, size // 2):
        to_left = even == (step % 2 == 1)
        partner = np.where(to_left, me - 1, me + 1) % size
        pair = at(group.output, held, 2)
        yield Round(Message(me, partner, pair, pair))
        held = held[partner]
