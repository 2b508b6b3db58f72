"""Reduce up a binomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("reduce", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Combine pairs of ever larger subtrees.

    A non-commutative operation is reduced to rank 0, whose subtrees are
    intervals of ranks, and sent on to the root.

    Notes
    -----
    ⌈log₂ p⌉ rounds (one more for a non-commutative operation and a root other
    than 0); every rank but the root sends c once.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    root = group.root if group.commutative else 0
    yield from to_rank(group, root)
    if root != group.root:
        vector = group.whole(group.output)
        yield Round(Message(root, group.root, vector, vector))


def to_rank(group: Group, root: int) -> Rounds:
    """Reduce to position `root`, in rank order where that is 0."""
    size = group.size
    for level in range(ceil_log2(size)):
        span = 1 << level
        me = np.arange(span, size, 2 * span)
        # Leaves send their input as it is; a first combination reads the input, too.
        sent = np.where((me % 2 == 1) | (me == size - 1), group.input, group.output)
        yield Round(
            Message(
                (me + root) % size,
                (me - span + root) % size,
                group.whole(sent),
                group.whole(group.output),
                combine=group.whole(group.input if level == 0 else group.output),
            )
        )
