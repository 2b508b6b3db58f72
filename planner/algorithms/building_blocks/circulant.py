"""Rounds of reduce-scatter and allgather on a circulant graph, for any number of ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collplan.planner.algorithms.building_blocks.block_schedule import sent_blocks
from collplan.planner.algorithms.rounds import Chunks, Group, Index, Message, Round, Rounds, at
from collplan.planner.arrays import Ints

Partial = Callable[[Index, Index, int], Chunks]
"""``partial(rank, slot, n)`` names the partial results of n blocks from rank + slot on."""


def skips(size: int) -> list[tuple[int, int]]:
    """Return the skip and the number of moved blocks of every round.

    A skip is half of the blocks that are still held, rounded up.

    Examples
    --------
    >>> skips(7)
    [(4, 3), (2, 2), (1, 1)]
    """
    rounds, held = [], size
    while held > 1:
        skip = (held + 1) // 2
        rounds.append((skip, held - skip))
        held = skip
    return rounds


def circulant_reduce_scatter(group: Group, partial: Partial) -> Rounds:
    """Compute the combination of chunk r in the output of position r.

    A position holds the blocks from its own one on. With skip s, position r sends
    the blocks from r + s on to r + s, which combines them with its own ones.
    """
    me, size = group.positions, group.size
    held, combined = size, 0  # of the blocks held, the first `combined` are partial results
    for skip, n in skips(size):
        n_partial = max(0, min(held, combined) - skip)
        read = (
            partial(me, skip, n_partial),
            at(group.input, (me + skip + n_partial) % size, n - n_partial),
        )
        dest = (me + skip) % size
        value = partial(dest, 0, n) if combined else at(group.input, dest, n)
        # After the last round, only the position's own block is left.
        write = at(group.output, dest) if skip == 1 else partial(dest, 0, n)
        yield Round(Message(me, dest, read, write, combine=value, incoming_left=True))
        held, combined = skip, max(combined, n)


def circulant_allgather(group: Group) -> Rounds:
    """Send chunk r from the output of position r to all outputs: the reversed reduce-scatter."""
    me, size = group.positions, group.size
    for skip, n in reversed(skips(size)):
        chunks = at(group.output, me, n)
        yield Round(Message(me, (me - skip) % size, chunks, chunks))


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


def blockwise_allgather(group: Group) -> Rounds:
    """Send all parts of chunk r from the output of position r to all outputs."""
    me, size = group.positions, group.size
    for skip, block in sent_blocks(group):
        chunks = tuple(
            at(group.output, (me - far) % size + part * size)
            for far, part in _moved(size, skip, block)
        )
        yield Round(Message(me, (me + skip) % size, chunks, chunks))


def _moved(size: int, skip: int, block: Ints) -> list[tuple[int, int]]:
    """Return the chunks of a message: the distance of each before the sender, and its part."""
    far = np.flatnonzero((block >= 0) & ((np.arange(size) + skip) % size != 0))
    return list(zip(far.tolist(), block[far].tolist(), strict=True))
