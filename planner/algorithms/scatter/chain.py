"""Scatter along a chain of ranks."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("scatter", "chain", tree="any", streams=True, per_pair=0.5, forwards=True)
def chain(group: Group) -> Rounds:
    """Move blocks away from the root along a chain, the farthest block first.

    In round t the rank v after the root passes on the block of the rank
    p - 1 - t + v after it, so all blocks arrive in the last round.

    Notes
    -----
    p - 1 rounds; the root sends (p - 1)·c and its neighbour (p - 2)·c. Two
    blocks of scratch.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    size, root = group.size, group.root
    relay = group.scratch_slots(2)
    for step in range(size - 1):
        relative = np.arange(0, step + 1)
        source, dest = group.from_root(relative), group.from_root(relative + 1)
        block = group.from_root(size - 1 - step + relative)
        from_root = relative == 0
        read = at(
            np.where(from_root, group.input, relay),
            np.where(from_root, block, step % 2 * size + block),
        )
        write = (
            at(group.output, block)
            if step == size - 2
            else at(relay, (step + 1) % 2 * size + block)
        )
        yield Round(Message(source, dest, read, write))
    yield Round(Copy(root, at(group.input, root), at(group.output, root)))
