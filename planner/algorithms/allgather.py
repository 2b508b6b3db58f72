"""Algorithms of allgather."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@algorithm("allgather", "bruck", best_for=("short",))
def bruck(group: Group) -> Rounds:
    """Double the run of blocks everyone holds, for any number of ranks.

    Runs lie where they belong in the receive buffer, wrapped around its end,
    so nothing is rotated afterwards.

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; (p - 1)·c per rank, which is, too.

    References
    ----------
    Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
    communications in multiport message-passing systems", IEEE TPDS 8, 1997.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for level in range(ceil_log2(size)):
        span = 1 << level
        n = min(span, size - span)
        read = at(group.input, me) if level == 0 else at(group.output, me, n)
        yield Round(Message(me, (me - span) % size, read, at(group.output, me, n)))


@algorithm(
    "allgather",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside",),
    per_pair=1.0,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to every rank, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c per rank.
    """
    me, size = group.positions, group.size
    block = at(group.input, me), at(group.output, me)
    yield Round.of(Message(me, (me + distance) % size, *block) for distance in range(1, size))
    yield Round(Copy(me, *block))


@algorithm("allgather", "neighbor_exchange", even_only=True, per_pair=0.5, forwards=True)
def neighbor_exchange(group: Group) -> Rounds:
    """Exchange pairs of blocks with the left and the right neighbour in turn.

    ::

        0 <> 1    2 <> 3    own blocks
        0    1 <> 2    3    the pair just received; 0 <> 3 around the end
        0 <> 1    2 <> 3    and so on

    Notes
    -----
    p/2 rounds for an even number of ranks; (p - 1)·c per rank, all of it between
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


@algorithm("allgather", "recursive_doubling", power_of_two_only=True)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange everything held with partners at distance 1, 2, 4, ...

    Notes
    -----
    log₂ p rounds for powers of two; (p - 1)·c per rank.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005; the hypercube of Hartmann et al. 2006.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for level in range(floor_log2(size)):
        span = 1 << level
        first = me // span * span
        read = at(group.input if level == 0 else group.output, first, span)
        yield Round(Message(me, me ^ span, read, at(group.output, first, span)))


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
    p - 1 rounds; (p - 1)·c per rank, which is optimal. LogGP:
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
