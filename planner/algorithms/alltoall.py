"""Algorithms of alltoall."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("alltoall", "bruck", regular_only=True, best_for=("short",))
def bruck(group: Group) -> Rounds:
    """Move every block by the binary digits of its distance.

    Blocks are kept by distance: slot s of rank r begins as the block for r + s.
    Round k moves the slots with bit k set by 2^k ranks, as one strided message;
    in the end slot s holds the block that came from r - s.

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; about p/2·c per rank and round: best for
    short blocks.

    References
    ----------
    Bruck et al. 1997.
    """
    me, size = group.positions, group.size
    by_distance = group.rotated_scratch()
    yield Round(Copy(me, at(group.input, me, size), at(by_distance, 0, size)))
    for level in range(ceil_log2(size)):
        span = 1 << level
        full, rest = divmod(size, 2 * span)
        slots = (
            at(by_distance, span, span, stride=2 * span, repeat=full),
            at(by_distance, full * 2 * span + span, max(0, rest - span)),
        )
        yield Round(Message(me, (me + span) % size, slots, slots))
    up_to_me = at(group.output, me, stride=-1, repeat=me + 1)
    beyond_me = at(group.output, size - 1, stride=-1, repeat=size - 1 - me)
    yield Round(Copy(me, at(by_distance, 0, size), (up_to_me, beyond_me)))


@algorithm(
    "alltoall",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
    per_pair=1.0,
    at_once=True,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to its rank, all at once, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c per rank; p - 1
    messages in flight per rank.

    References
    ----------
    Tran et al., "OHIO", 2024: scatter-destination.
    """
    me, size = group.positions, group.size
    yield Round.of(
        Message(me, dest, at(group.input, dest), at(group.output, me))
        for dest in ((me + distance) % size for distance in range(1, size))
    )
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))


@algorithm(
    "alltoall",
    "pairwise",
    best_for=("long",),
    next_best_for=("short",),
    streams=True,
    per_pair=1.0,
    at_once=True,
)
def pairwise(group: Group) -> Rounds:
    """Exchange with one partner per round: XOR on powers of two, else right and left.

    Notes
    -----
    p - 1 rounds; (p - 1)·c per rank. LogGP: (p - 1)·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    is_power_of_two = size & (size - 1) == 0
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for step in range(1, size):
        dest = me ^ step if is_power_of_two else (me + step) % size
        yield Round(Message(me, dest, at(group.input, dest), at(group.output, me)))
