"""Schedules that send every rank's block to all ranks once, and the same schedules reversed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.algorithms.building_blocks.block_schedule import doubling_skips
from collplan.planner.algorithms.building_blocks.trees import spans
from collplan.planner.algorithms.rounds import (
    Chunks,
    Copy,
    Group,
    Index,
    Message,
    Round,
    Rounds,
    at,
)
from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from collplan.planner.memory import require_memory

BYTES_PER_RUN: Final = 64
"""Peak memory in bytes of the description of a run of blocks, per position."""


class Hop(NamedTuple):
    """One round, in which distances to receivers and to owners of blocks are equal on all ranks.

    Parameters
    ----------
    skip : int
        Distance from the sender to the receiver.
    sent : ndarray of int64, ascending
        Distances from the sender to the ranks whose blocks it sends.
    is_mirrored : bool
        Whether these distances count backwards on odd ranks, so that pairs exchange.
    """

    skip: int
    sent: Ints
    is_mirrored: bool = False

    def received(self, size: int) -> Ints:
        """Return the distances of the sent blocks from the receiver, backwards if mirrored."""
        from_here = self.skip - self.sent if self.is_mirrored else self.sent - self.skip
        return from_here % size

    def offset(self, me: Any, distance: int, n: int = 1) -> Index:
        """Return the offset of the first of `n` ranks at `distance` and following distances."""
        if not self.is_mirrored:
            return distance
        return np.where(me % 2 == 0, distance, 1 - distance - n)


def sparbit_hops(size: int) -> tuple[Hop, ...]:
    """Return hops over decreasing distances; each halves the gaps between held blocks.

    Examples
    --------
    >>> [(hop.skip, hop.sent.tolist()) for hop in sparbit_hops(6)]
    [(4, [0]), (2, [0]), (1, [0, 2, 4])]
    """
    hops = []
    for level in reversed(range(ceil_log2(size))):
        skip = 1 << level
        sent = np.sort(-np.arange(0, size - skip, 2 * skip) % size)
        hops.append(Hop(skip, sent))
    return tuple(hops)


def bruck_hops(size: int, radix: int) -> tuple[Hop, ...]:
    """Return hops in which the run of held blocks grows by a factor of `radix` per level.

    Examples
    --------
    >>> [(hop.skip, hop.sent.tolist()) for hop in bruck_hops(6, 3)]
    [(5, [0]), (4, [0]), (3, [0, 1, 2])]
    """
    return tuple(
        Hop(-step % size, np.arange(min(span, size - step)))
        for span in spans(size, radix)
        for step in range(span, min(radix * span, size), span)
    )


def circulant_hops(size: int) -> tuple[Hop, ...]:
    """Return hops in which the run of held blocks doubles, to half of the blocks in the last hop.

    Examples
    --------
    >>> [(hop.skip, hop.sent.tolist()) for hop in circulant_hops(7)]
    [(6, [0]), (5, [0, 1]), (3, [0, 1, 2])]
    """
    ends = pairwise(doubling_skips(size))
    return tuple(Hop(-skip % size, np.arange(end - skip)) for skip, end in ends)


def pat_hops(size: int, aggregation: int) -> tuple[Hop, ...]:
    """Return hops along trees that begin with far ranks; up to `aggregation` trees run together.

    The number of trees is rounded down to a power of two, and is at most half of the smallest
    power of two that is at least `size`.

    Examples
    --------
    >>> [(hop.skip, hop.sent.tolist()) for hop in pat_hops(6, 2)]
    [(2, [0]), (5, [0, 4]), (4, [0]), (5, [2])]
    """
    span = 1 << ceil_log2(size)
    trees = 1 << floor_log2(max(1, min(aggregation, span // 2)))
    depth = span // trees
    found = []
    while span > depth:
        span //= 2
        found.append((span, np.arange(0, size - span, 2 * span)))
    for node in _nearest_subtrees(0, depth):
        skip = node & -node
        found.append((skip, np.arange(node, size, depth) - skip))
    return tuple(Hop(-skip % size, sent) for skip, sent in found if len(sent))


def _nearest_subtrees(node: int, span: int) -> Iterator[int]:
    """Yield the nodes below a node of a binomial tree, smaller subtrees first."""
    step = 1
    while step < span:
        yield node + step
        yield from _nearest_subtrees(node + step, step)
        step *= 2


def runs(distances: Ints) -> Iterator[tuple[int, int]]:
    """Return the first distance and the length of every run of consecutive distances.

    Examples
    --------
    >>> list(runs(np.array([0, 3, 4, 5, 9])))
    [(0, 1), (3, 3), (9, 1)]
    """
    begins = np.flatnonzero(np.diff(distances, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(distances))
    return zip(distances[begins].tolist(), lengths.tolist(), strict=True)


def allgather(group: Group, hops: Sequence[Hop]) -> Rounds:
    """Yield the rounds of an allgather; the first hop must send only the ranks' own blocks."""
    me = group.positions
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    yield from spread(group, hops, group.input)


def _positions(group: Group, hops: Sequence[Hop]) -> Any:
    """Return all positions. Mirrored hops depend on whether a position is even or odd.

    Raises
    ------
    AlgorithmError
        If the runs of blocks of all positions do not fit into memory.
    """
    positions = group.positions
    if group.motion is None and any(hop.is_mirrored for hop in hops):
        n_runs = sum(1 for hop in hops for _ in runs(hop.sent))
        n_needed = len(group.needed(positions, positions, positions))
        require_memory(n_runs * min(2 * n_needed, group.size) * BYTES_PER_RUN)
    return positions


def _ends(group: Group, hop: Hop, positions: Any) -> tuple[Any, Any]:
    """Return the positions whose messages are needed, and those to which the hop leads."""
    others = (positions + hop.offset(positions, hop.skip)) % group.size
    me = group.needed(positions, positions, others)
    return me, (me + hop.offset(me, hop.skip)) % group.size


def spread(group: Group, hops: Sequence[Hop], first_space: Index | None = None) -> Rounds:
    """Yield rounds that send chunk r from the output of rank r to all outputs.

    Parameters
    ----------
    group : Group
    hops : sequence of Hop
    first_space : int or ndarray, optional
        Space from which the first round reads instead of the output.
    """
    positions, size = _positions(group, hops), group.size
    for number, hop in enumerate(hops):
        me, dest = _ends(group, hop, positions)
        chunks = tuple(
            at(group.output, (me + hop.offset(me, first, n)) % size, n)
            for first, n in runs(hop.sent)
        )
        read = chunks if number or first_space is None else at(first_space, me)
        yield Round(Message(me, dest, read, chunks))


def reduce_scatter(group: Group, hops: Sequence[Hop], *, in_output: bool = False) -> Rounds:
    """Compute the combination of chunk r in the output of rank r, with hops and messages reversed.

    Operands are not combined in rank order. Partial results are in scratch by default, otherwise
    in the output.
    """
    positions, size = _positions(group, hops), group.size
    scratch = None if in_output else group.rotated_scratch()

    def partial(block: Index, slot: Index, n: int) -> Chunks:
        return at(group.output, block, n) if scratch is None else at(scratch, slot, n)

    combined = np.zeros(size, dtype=np.bool_)
    for number in reversed(range(len(hops))):
        hop = hops[number]
        # Senders are in ascending order.
        receivers = positions if hop.is_mirrored else (positions - hop.skip) % size
        me, source = _ends(group, hop, receivers)
        skip = hop.offset(me, hop.skip)
        read, write, own = [], [], []
        for is_sent_combined, is_own_combined, first, n in _alike(hop, combined):
            offset = hop.offset(me, first, n)
            block = (me + offset) % size
            whole = at(group.input, block, n)
            here = partial(block, offset % size, n)
            there = partial(block, (offset - skip) % size, n)
            read.append(there if is_sent_combined else whole)
            own.append(here if is_own_combined else whole)
            write.append(here if number else at(group.output, me))
        combined[hop.sent] = True
        chunks = tuple(read), tuple(write), tuple(own)
        yield Round(Message(source, me, *chunks, incoming_left=True))


def allreduce(group: Group, hops: Sequence[Hop]) -> Rounds:
    """Compute the combination of all chunks in all outputs: a reduce-scatter, and its hops back."""
    yield from reduce_scatter(group, hops, in_output=True)
    yield from spread(group, hops)


def _alike(hop: Hop, combined: Bools) -> Iterator[tuple[bool, bool, int, int]]:
    """Yield the runs of blocks of a hop that are in the same state.

    Each run comes after two flags: whether the sender and the receiver of the reversed message
    have combined these blocks already.
    """
    state = 2 * combined[hop.received(len(combined))] + combined[hop.sent]
    found, places = np.unique(state, return_index=True)
    for one in found[np.argsort(places)].tolist():
        for first, n in runs(hop.sent[state == one]):
            yield one >= 2, one % 2 == 1, first, n
