"""Gather along a chain of ranks."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("gather", "chain", tree="any", streams=True, per_pair=0.5, forwards=True)
def chain(group: Group) -> Rounds:
    """Move blocks towards the root along a chain, a block a round.

    In round t the rank v after the root passes on block v + t: first its own,
    then what arrived from v + 1.

    Notes
    -----
    p - 1 rounds; the root's neighbour sends (p - 1)·c, and all blocks enter
    the root over one link in the order of the chain. Two blocks of scratch.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    size, root = group.size, group.root
    relay = group.scratch_slots(2)
    yield Round(Copy(root, at(group.input, root), at(group.output, root)))
    for step in range(size - 1):
        relative = np.arange(1, size - step)
        source, dest = group.from_root(relative), group.from_root(relative - 1)
        block = group.from_root(relative + step)
        read = at(group.input, block) if step == 0 else at(relay, step % 2 * size + block)
        at_root = relative == 1
        write = at(
            np.where(at_root, group.output, relay),
            np.where(at_root, block, (step + 1) % 2 * size + block),
        )
        yield Round(Message(source, dest, read, write))
