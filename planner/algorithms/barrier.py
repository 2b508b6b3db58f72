"""Algorithms of barrier."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, option_int
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@algorithm("barrier", "binomial")
def binomial(group: Group) -> Rounds:
    """Signal up a binomial tree to rank 0, then down it.

    Notes
    -----
    2·⌈log₂ p⌉ rounds; 2(p - 1) empty messages in all, the fewest.

    References
    ----------
    Hensgen, Finkel, Manber 1988.
    """
    levels = [np.arange(1 << k, group.size, 2 << k) for k in range(ceil_log2(group.size))]
    for span, nodes in enumerate(levels):
        yield Round(Message(nodes, nodes - (1 << span), ordered=True))
    for span, nodes in reversed(list(enumerate(levels))):
        yield Round(Message(nodes - (1 << span), nodes, ordered=True))


@algorithm("barrier", "dissemination", best_for=("short",), options={"radix": 2})
def dissemination(group: Group) -> Rounds:
    """Signal the ranks j·radix^k ahead, for all j below the radix, in phase k.

    Notes
    -----
    ⌈log₂ p⌉ rounds for radix 2 and any p, which is optimal; empty messages. Larger radices send
    up to radix - 1 messages at once, and wait ⌈log_radix p⌉ times: Σ min(radix - 1,
    ⌈p/radix^k⌉ - 1) rounds over all radix^k < p.

    References
    ----------
    Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
    Int. J. Parallel Program. 17, 1988; with a radix, Hoefler, Mehlan, Mietke, Rehm, "Fast barrier
    synchronization for InfiniBand", IPDPS 2006.
    """
    me, size = group.positions, group.size
    radix, span = min(option_int(group, "radix", 2), max(2, size)), 1
    while span < size:
        steps = range(span, min(radix * span, size), span)
        yield Round(*(Message(me, (me + step) % size, ordered=True) for step in steps))
        span *= radix


@algorithm("barrier", "double_ring", tried_as=())
def double_ring(group: Group) -> Rounds:
    """Pass a signal from rank to rank, once around and then on to the last rank.

    Notes
    -----
    2p - 1 rounds, of one empty message each.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007.
    """
    if group.size > 1:
        for hop in range(2 * group.size - 1):
            yield Round(Message(hop % group.size, (hop + 1) % group.size, ordered=True))


@algorithm("barrier", "linear")
def linear(group: Group) -> Rounds:
    """Signal rank 0 from all ranks, then all ranks from rank 0.

    Notes
    -----
    2(p - 1) rounds, as rank 0 receives and sends one message at a time; 2(p - 1) empty messages
    in all, the fewest.

    References
    ----------
    Hensgen, Finkel, Manber 1988: the central counter.
    """
    yield Round(Message(group.others, 0, ordered=True))
    yield Round(Message(0, group.others, ordered=True))


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
