"""Algorithms of barrier."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@algorithm("barrier", "dissemination", best_for=("short",))
def dissemination(group: Group) -> Rounds:
    """Signal the rank 2^k ahead in round k.

    Notes
    -----
    ⌈log₂ p⌉ rounds for any p, which is optimal; empty messages.

    References
    ----------
    Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
    Int. J. Parallel Program. 17, 1988.
    """
    me, size = group.positions, group.size
    for level in range(ceil_log2(size)):
        yield Round(Message(me, (me + (1 << level)) % size, ordered=True))


@algorithm("barrier", "recursive_doubling")
def recursive_doubling(group: Group) -> Rounds:
    """Exchange signals with partners at distance 1, 2, 4, ...; surplus ranks fold.

    Notes
    -----
    log₂ p rounds for powers of two, ⌊log₂ p⌋ + 2 else; empty messages.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    folding = fold(group.size)
    yield Round(Message(folding.folded, folding.hosts, ordered=True))
    me = folding.numbers(group)
    for level in range(floor_log2(folding.n_survivors)):
        partner = folding.position(me ^ (1 << level))
        yield Round(Message(folding.position(me), partner, ordered=True))
    yield Round(Message(folding.hosts, folding.folded, ordered=True))
