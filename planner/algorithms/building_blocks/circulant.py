"""Rounds on a circulant graph, for any number of ranks: shared by reduce-scatter and allreduce."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collplan.planner.algorithms.building_blocks.block_schedule import sent_blocks
from collplan.planner.algorithms.rounds import Chunks, Group, Index, Message, Round, Rounds, at
from collplan.planner.arrays import Ints

Partial = Callable[[Index, Index, int], Chunks]
"""``partial(rank, slot, n)`` names the n blocks from rank + slot on, partly combined, at `rank`."""


def skips(size: int) -> list[tuple[int, int]]:
    """Return the skip of every round and the blocks it moves: halves, rounded up.

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
    """Leave chunk r, combined, in the output of position r.

    A position holds the blocks from its own on. With skip s, position r sends
    those for r + s onwards to r + s, which needs them for the same positions.
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
        # The last round leaves nothing but the position's own block.
        write = at(group.output, dest) if skip == 1 else partial(dest, 0, n)
        yield Round(Message(me, dest, read, write, combine=value, incoming_left=True))
        held, combined = skip, max(combined, n)


def circulant_allgather(group: Group) -> Rounds:
    """Spread chunk r from the output of position r to all outputs: the rounds above backwards."""
    me, size = group.positions, group.size
    for skip, n in reversed(skips(size)):
        chunks = at(group.output, me, n)
        yield Round(Message(me, (me - skip) % size, chunks, chunks))


def blockwise_reduce_scatter(group: Group, partial: int) -> Rounds:
    """Leave all parts of chunk r, combined, in the output of position r: an allgather backwards.

    The option `blocks` says how many parts there are: part i of chunk r is chunk ``r + i * size``.
    Turned around, messages of bcast on a circulant graph with every position as the root carry
    one part of each chunk.

    Parameters
    ----------
    group : Group
    partial : int
        The space in which positions combine what is for others.
    """
    me, size = group.positions, group.size
    is_partial = np.zeros((size, group.n_chunks // size), dtype=bool)
    for skip, block in reversed(list(sent_blocks(group))):
        read, write, own = [], [], []
        moved = _moved(size, skip, block)
        for far, part in moved:
            # The sender is a skip after the receiver, and as much farther from the chunk's owner.
            chunk, kept = (me - far) % size + part * size, partial if far else group.output
            read.append(at(partial if is_partial[far + skip - size, part] else group.input, chunk))
            own.append(at(kept if is_partial[far, part] else group.input, chunk))
            write.append(at(kept, chunk))
        is_partial[tuple(np.transpose(moved))] = True
        ends = (me + skip) % size, me
        yield Round(Message(*ends, tuple(read), tuple(write), tuple(own), incoming_left=True))


def blockwise_allgather(group: Group) -> Rounds:
    """Spread all parts of chunk r from the output of position r: the rounds above backwards."""
    me, size = group.positions, group.size
    for skip, block in sent_blocks(group):
        chunks = tuple(
            at(group.output, (me - far) % size + part * size)
            for far, part in _moved(size, skip, block)
        )
        yield Round(Message(me, (me + skip) % size, chunks, chunks))


def _moved(size: int, skip: int, block: Ints) -> list[tuple[int, int]]:
    """Return how far before senders the chunks are that they send, and the part of each."""
    far = np.flatnonzero((block >= 0) & ((np.arange(size) + skip) % size != 0))
    return list(zip(far.tolist(), block[far].tolist(), strict=True))
