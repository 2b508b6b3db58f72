"""Round-optimal schedules of broadcasts in blocks on circulant graphs, for any number of ranks.

References
----------
Träff, "Optimal broadcast schedules in logarithmic time with applications to broadcast,
all-broadcast, reduction and all-reduction", ACM TOPC 2025 (arXiv 2407.18004): skips, baseblocks
(algorithm 2) and receive schedules; his 2023 paper (arXiv 2312.11236) has the n-block broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from collplan.planner.algorithms.relative import NotRelativeError
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at, option_int
from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.machine_code.kernel import compile_with, inner

FEW_FILLED: Final = 8
"""Share of the blocks, as its inverse, below which only those that are not empty are named."""


def doubling_skips(size: int) -> list[int]:
    """Return the skips of all rounds of a phase, followed by the size.

    Each number is half of the next one, rounded up.

    Examples
    --------
    >>> doubling_skips(17)
    [1, 2, 3, 5, 9, 17]
    """
    skips = [size]
    while skips[0] > 1:
        skips.insert(0, (skips[0] + 1) // 2)
    return skips


@inner
def baseblock(rank: int, skips: Ints) -> int:
    """Return the number of the first block that a rank receives.

    It is the index of the smallest skip on the rank's path from the root.
    """
    for k in range(len(skips) - 2, -1, -1):
        if rank >= skips[k]:
            rank -= skips[k]
            if rank == 0:
                return k
    return len(skips) - 1


@compile_with(work=lambda skips, received: 8 * received.size)
def _receive(skips: Ints, received: Ints) -> None:
    """Write the block that every rank receives in each round of a phase, relative to the phase.

    Depth-first search of paths from the root that tries the longest skips first. Among the paths
    that do not end after the sender in a round, the search takes the one that ends latest and has
    an unused last skip. Used skips are unlinked from the list of skips that the search tries.
    """
    size, q = received.shape
    # The skip that is tried after skip e, and the one that is tried before it, are entries e + 1.
    after, before = np.empty((2, q + 3), dtype=np.int64)
    # Places on the path, and the skips that are tried from there.
    places, tried = np.empty((2, size + 1), dtype=np.int64)
    for rank in range(size):
        own = baseblock(rank, skips)
        for e in range(-1, q + 2):
            after[e + 1], before[e + 1] = e - 1, e + 1
        _unlink(after, before, own)
        n_found, latest, depth, has_searched = 0, 2 * size, 0, False
        places[0], tried[0] = 0, q
        while depth >= 0:
            at, e = places[depth], tried[depth]
            if not has_searched:
                if e < 0 or n_found == q:
                    depth, has_searched = depth - 1, True
                    continue
                end = at + skips[e]
                if end > rank + size - skips[n_found] or end >= latest:
                    tried[depth] = after[e + 1]
                    continue
                if end <= rank + size - skips[n_found + 1]:
                    depth += 1
                    places[depth], tried[depth] = end, e
                    continue
            has_searched = n_found == q or at > rank + size - skips[n_found + 1]
            if has_searched:
                depth -= 1
                continue
            latest = at + skips[e]
            received[rank, n_found] = own if e == q else e - q
            n_found += 1
            _unlink(after, before, e)
            tried[depth] = after[e + 1]


@inner
def _unlink(after: Ints, before: Ints, e: int) -> None:
    """Remove a skip from the list of those that are tried."""
    after[before[e + 1] + 1] = after[e + 1]
    before[after[e + 1] + 1] = before[e + 1]


@lru_cache(maxsize=16)
def block_schedule(size: int) -> tuple[Ints, Ints]:
    """Return the blocks that every rank receives and sends in each round of a phase.

    In round k, rank r receives from r - s and sends to r + s, where s is skip k. Block numbers are
    relative to the phase. Negative blocks belong to earlier phases. In each phase, a rank receives
    one block that is not negative.

    Returns
    -------
    received, sent : ndarray of int64, shape (size, ⌈log₂ size⌉)
    """
    skips = doubling_skips(size)
    q = len(skips) - 1
    received = np.empty((size, q), dtype=np.int64)
    _receive(np.array(skips, dtype=np.int64), received)
    to = (np.arange(size)[:, None] + np.array(skips[:q], dtype=np.int64)) % size
    sent = received[to, np.arange(q)]
    for table in (received, sent):
        table.flags.writeable = False
    return received, sent


def phases(size: int, n_blocks: int) -> Iterator[tuple[int, int]]:
    """Yield, per round, its number within its phase and the offset of the blocks of the phase.

    There are n_blocks - 1 + ⌈log₂ size⌉ rounds, and the last round ends a phase. Blocks below 0
    do not exist. Numbers beyond the last block stand for the last block.
    """
    q = ceil_log2(size)
    if q == 0:
        return
    early = -(n_blocks - 1) % q
    for i in range(early, early + n_blocks - 1 + q):
        yield i % q, i // q * q - early


def sent_blocks(group: Group) -> Iterator[tuple[int, Ints]]:
    """Yield, per round, the skip and the block that every position sends if the root is 0.

    Block -1 means that a position sends no block.
    """
    n_blocks = option_int(group, "blocks", 1)
    if group.size == 1:
        return
    skips, (_, sent) = doubling_skips(group.size), block_schedule(group.size)
    for k, more in phases(group.size, n_blocks):
        yield skips[k], np.clip(sent[:, k] + more, -1, n_blocks - 1)


def blockwise_reduce_scatter(group: Group, partial: int) -> Rounds:
    """Compute the combination of all parts of chunk r in the output of position r.

    Part i of chunk r is chunk ``r + i * size``; the option `blocks` is the number of parts. The
    rounds are those of `blockwise_allgather` in reverse order and with reversed messages: a
    bcast on a circulant graph from every position at once.

    Parameters
    ----------
    group : Group
    partial : int
        Space in which positions combine the chunks of other positions.
    """
    me, size = group.positions, group.size
    is_partial = np.zeros((size, group.n_chunks // size), dtype=bool)
    for skip, block in reversed(list(sent_blocks(group))):
        read, write, own = [], [], []
        moved = _moved(size, skip, block)
        for far, part in moved:
            # The sender is at distance `skip` after the receiver, and is farther from the owner
            # of the chunk by the same distance.
            chunk, kept = (me - far) % size + part * size, partial if far else group.output
            read.append(at(partial if is_partial[far + skip - size, part] else group.input, chunk))
            own.append(at(kept if is_partial[far, part] else group.input, chunk))
            write.append(at(kept, chunk))
        is_partial[tuple(np.transpose(moved))] = True
        ends = (me + skip) % size, me
        yield Round(Message(*ends, tuple(read), tuple(write), tuple(own), incoming_left=True))


def blockwise_allgather(group: Group, own: int) -> Rounds:
    """Send all parts of chunk r from space `own` of position r to all other outputs."""
    me, size = group.positions, group.size
    for skip, block in sent_blocks(group):
        # Nobody gets its own block.
        wanted = (block >= 0) & ((np.arange(size) + skip) % size != 0)
        parts = list(_parts(group, own, np.maximum(0, block) * size, wanted))
        read = tuple(at(space, chunk, n) for space, chunk, n in parts)
        write = tuple(at(group.output, chunk, n) for _, chunk, n in parts)
        yield Round(Message(me, (me + skip) % size, read, write))


def _parts(group: Group, own: int, first: Ints, wanted: Bools) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the space, chunk and number of parts that all positions send, one run at a time.

    Position r sends of the block of the rank `far` before it the part that begins at chunk
    `first[far]` of rank 0, if that is `wanted`.
    """
    me, size = group.positions, group.size
    filled = np.arange(size)
    if group.by_counts:
        filled = np.flatnonzero(group.counts.reshape(-1, size).any(axis=0))
    if FEW_FILLED * len(filled) >= size:
        for far in np.flatnonzero(wanted).tolist():
            held = group.output if far else own
            yield held, (me - far) % size + int(first[far]), 1
        return
    if group.motion is not None:
        raise NotRelativeError
    for rank in filled.tolist():
        far = (me - rank) % size
        held_in = np.where(far == 0, own, group.output)
        yield held_in, rank + first[far], wanted[far].astype(np.int64)


def _moved(size: int, skip: int, block: Ints) -> list[tuple[int, int]]:
    """Return the chunks of a message: the distance of each before the sender, and its part."""
    far = np.flatnonzero((block >= 0) & ((np.arange(size) + skip) % size != 0))
    return list(zip(far.tolist(), block[far].tolist(), strict=True))
