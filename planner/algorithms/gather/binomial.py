"""Gather up a binomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("gather", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Collect ever larger runs of blocks up a binomial tree.

    Inner ranks collect their subtree's blocks side by side in scratch, so
    each sends one contiguous message; the root receives in place.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c enter the root.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size, root = group.size, group.root
    subtree = group.rotated_scratch()
    me = np.arange(2, size - 1, 2)
    inner = group.from_root(me)
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(group.input, inner), at(subtree, 0)),
    )
    for level in range(ceil_log2(size)):
        span = 1 << level
        relative = np.arange(span, size, 2 * span)
        source, dest = group.from_root(relative), group.from_root(relative - span)
        n = np.minimum(span, size - relative)
        # A leaf has nothing but its own block, which needs no staging.
        leaf = (relative % 2 == 1) | (relative == size - 1)
        read = at(np.where(leaf, group.input, subtree), np.where(leaf, source, 0), n)
        to_root = relative == span
        write = at(np.where(to_root, group.output, subtree), np.where(to_root, source, span), n)
        yield Round(Message(source, dest, read, write))
