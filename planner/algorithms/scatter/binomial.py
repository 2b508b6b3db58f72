"""Scatter down a binomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("scatter", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Halve runs of blocks down a binomial tree.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c leave the root. Inner ranks hold their subtree's
    blocks in scratch.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size, root = group.size, group.root
    subtree = group.rotated_scratch()
    for level in reversed(range(ceil_log2(size))):
        span = 1 << level
        relative = np.arange(span, size, 2 * span)
        source, dest = group.from_root(relative - span), group.from_root(relative)
        n = np.minimum(span, size - relative)
        from_root = relative == span
        read = at(np.where(from_root, group.input, subtree), np.where(from_root, dest, span), n)
        leaf = (relative % 2 == 1) | (relative == size - 1)
        write = at(np.where(leaf, group.output, subtree), np.where(leaf, dest, 0), n)
        yield Round(Message(source, dest, read, write))
    inner = group.from_root(np.arange(2, size - 1, 2))
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(subtree, 0), at(group.output, inner)),
    )
