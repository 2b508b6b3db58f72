"""Algorithms of alltoall."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.algorithms.building_blocks.bine import peers, rho, ways
from collplan.planner.algorithms.closed_forms import digits_ns, straight_ns
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import (
    Copy,
    Group,
    Message,
    Round,
    Rounds,
    at,
    option_int,
)
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("alltoall", "bine", even_only=True, by_counts=True)
def bine(group: Group) -> Rounds:
    """Move every block by few of the distances 1, -1, 3, -5, 11, ..., forwards and back in turns.

    In each round all ranks exchange with one partner, as in allgather's algorithm of this name.

    Notes
    -----
    ⌈log₂ p⌉ rounds for an even number of ranks, which is optimal; p/2·c per rank and round for
    powers of two, and up to 40 ranks never more than Bruck's algorithm else. Up to ⌈log₂ p⌉ - 1
    blocks of scratch per block.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    if size == 1:
        return
    found = ways(size)
    on_way = [(n, far) for far, way in enumerate(found) for n in range(1, len(way))]
    slots = dict(zip(on_way, range(len(on_way)), strict=True))
    counts = group.counts
    if group.pair_counts is None:
        sizes = np.full((1, len(slots)), counts[0])
    else:
        sizes = np.array([counts[_passing(me, size, far, n)] for n, far in slots], dtype=np.int64)
        sizes = sizes.reshape(len(slots), size).T
    scratch = group.unlike_scratch(sizes)
    for k in range(ceil_log2(size)):
        dest = peers(me, size, k)
        read, write = [], []
        for far, way in enumerate(found):
            if k not in way:
                continue
            n = way.index(k)
            first, last = _passing(me, size, far, n)
            read.append(at(scratch, slots[n, far]) if n else at(group.input, last))
            is_there = n + 1 == len(way)
            write.append(at(group.output, first) if is_there else at(scratch, slots[n + 1, far]))
        yield Round(Message(me, dest, tuple(read), tuple(write)))


def _passing(me: Ints, size: int, distance: int, n_hops: int) -> tuple[Ints, Ints]:
    """Return where a block begins and ends that is at `me` after some hops over a distance.

    An even rank's distance is counted forwards, and an odd rank's backwards.
    """
    way = ways(size)[distance][:n_hops]
    done = sum((-1) ** i * rho(k) for i, k in enumerate(way))
    sign = np.where((me + n_hops) % 2 == 0, 1, -1)
    first = (me - sign * done) % size
    return first, (first + sign * distance) % size


@algorithm(
    "alltoall",
    "bruck",
    best_for=("short",),
    by_counts=True,
    unlike_ns=digits_ns,
    options={"radix": 2},
)
def bruck(group: Group) -> Rounds:
    """Move every block by the digits of its distance.

    Equal blocks are kept by distance: slot s of rank r begins as the block for r + s. Digit z
    at place k moves the slots that have it by z·radix^k ranks, as one strided message; in
    the end slot s holds the block that came from r - s. Blocks of unlike sizes move from where
    they are sent to where they are received, and lie in scratch only on the way.

    Notes
    -----
    For radix 2, ⌈log₂ p⌉ rounds, which is optimal, and about p/2·c per rank and round: best
    for short blocks. Larger radices take up to radix - 1 rounds per digit, and move a block once
    per digit that is not 0; from radix p on, straight.

    References
    ----------
    Bruck et al. 1997; for unlike sizes the two-phase Bruck of Fan, Gilray, Kumar, Micinski,
    "Optimizing the Bruck algorithm for non-uniform all-to-all communication", HPDC 2022, without
    its messages of sizes, which are known; Fan, Domke, Ba, Kumar, "Configurable non-uniform
    all-to-all algorithms", 2024: the radix (TuNA).
    """
    if group.pair_counts is not None:
        yield from _unlike_bruck(group)
        return
    me, size = group.positions, group.size
    by_distance = group.rotated_scratch()
    yield Round(Copy(me, at(group.input, me, size), at(by_distance, 0, size)))
    yield from _moves(group, by_distance)
    up_to_me = at(group.output, me, stride=-1, repeat=me + 1)
    beyond_me = at(group.output, size - 1, stride=-1, repeat=size - 1 - me)
    yield Round(Copy(me, at(by_distance, 0, size), (up_to_me, beyond_me)))


def _moves(group: Group, by_distance: int) -> Rounds:
    """Move what lies in slots of equal sizes by the digits of the slots' numbers."""
    me, size = group.positions, group.size
    for span, digit, radix in _digits(group):
        first, period = digit * span, radix * span
        full = max(0, size - first - span + period) // period
        rest = first + full * period
        slots = (
            at(by_distance, first, span, stride=period, repeat=full),
            at(by_distance, rest, max(0, size - rest)),
        )
        yield Round(Message(me, (me + first) % size, slots, slots))


def _digits(group: Group) -> Iterator[tuple[int, int, int]]:
    """Yield the value of each place of a distance, with every digit there, and the radix."""
    # A larger radix than the group has the same digits.
    radix, span = min(option_int(group, "radix", 2), max(2, group.size)), 1
    while span < group.size:
        for digit in range(1, radix):
            if digit * span < group.size:
                yield span, digit, radix
        span *= radix


def _unlike_bruck(group: Group) -> Rounds:
    """Move blocks of unlike sizes by the digits of their distance.

    Once its digits below radix^k have moved a block over distance d, it lies in scratch as
    chunk k·p + d, unless it is where it began or ends.
    """
    me, size, counts = group.positions, group.size, group.counts
    ranks = np.arange(size)
    # By distance (column), from each rank (row); distances over which nothing moves are left out.
    by_distance = counts[ranks[:, None], (ranks[:, None] + ranks) % size]
    used = by_distance.any(axis=0)
    places = sorted({span * radix for span, _, radix in _digits(group)})
    moved = [ranks % place for place in places]
    staged = [
        by_distance[(ranks[:, None] - done) % size, ranks] * ((done > 0) & (done < ranks))
        for done in moved
    ]
    scratch = group.unlike_scratch(np.hstack(staged or [by_distance]))
    yield Round()  # where equal blocks are copied: rounds are as many for all counts
    for span, digit, radix in _digits(group):
        place = places.index(span * radix)
        read, write = [], []
        for far in ranks[used & (ranks // span % radix == digit)].tolist():
            before = far % span
            # Digits that are 0 move nothing: the block came by the last one below that is not.
            last = next((i for i, done in enumerate(moved) if done[far] == before), 0)
            is_first, is_last = before == 0, far < span * radix
            own = at(group.input, (me + far) % size)
            read.append(own if is_first else at(scratch, last * size + far))
            here = (me + digit * span - far) % size
            write.append(at(group.output, here) if is_last else at(scratch, place * size + far))
        yield Round(Message(me, (me + digit * span) % size, tuple(read), tuple(write)))
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))


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
    unlike_ns=straight_ns,
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
