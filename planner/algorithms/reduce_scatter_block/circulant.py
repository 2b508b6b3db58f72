"""Reduce-scatter on a circulant graph."""

from __future__ import annotations

from planner.algorithms.registry import algorithm
from planner.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("reduce_scatter_block", "circulant", commutative_only=True)
def circulant(group: Group) -> Rounds:
    """Fold the blocks still held in half in every round, for any number of ranks.

    With skip s, rank r sends its partial blocks for ranks r + s onwards to
    r + s, which needs them for the same ranks, now counted from itself.

    Notes
    -----
    ⌈log₂ p⌉ rounds for any p and (p - 1)·c a rank: both optimal.

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 1.
    """
    me, size = group.positions, group.size
    if size == 1:
        yield Round(Copy(0, at(group.input, 0), at(group.output, 0)))
        return
    partial = group.rotated_scratch()
    held, combined = size, 0  # blocks r .. r+held-1 count; the first `combined` are in scratch
    while held > 1:
        skip = (held + 1) // 2
        n = held - skip
        n_partial = max(0, min(held, combined) - skip)
        read = (
            at(partial, skip, n_partial),
            at(group.input, (me + skip + n_partial) % size, n - n_partial),
        )
        dest = (me + skip) % size
        value = at(partial, 0, n) if combined else at(group.input, dest, n)
        # The last round leaves nothing but the rank's own block.
        write = at(group.output, dest) if skip == 1 else at(partial, 0, n)
        yield Round(Message(me, dest, read, write, combine=value, incoming_left=True))
        held, combined = skip, max(combined, n)
