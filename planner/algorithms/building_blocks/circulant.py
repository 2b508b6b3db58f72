"""Rounds on a circulant graph, for any number of ranks: shared by reduce-scatter and allreduce."""

from __future__ import annotations

from collections.abc import Callable

from collplan.planner.algorithms.rounds import Chunks, Group, Index, Message, Round, Rounds, at

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
