"""Broadcast as a binomial scatter and a ring allgather."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm(
    "bcast",
    "scatter_allgather",
    parts="size",
    best_for=("long",),
    per_pair=1.0,
    forwards=True,
)
def scatter_allgather(group: Group) -> Rounds:
    """Scatter the vector in p chunks, then pass all chunks around a ring.

    Notes
    -----
    ⌈log₂ p⌉ + p - 1 rounds; every rank sends and receives about 2c in all
    instead of the binomial tree's ⌈log₂ p⌉·c at the root.

    References
    ----------
    van de Geijn's algorithm, in Thakur, Rabenseifner, Gropp 2005.
    """
    size, out = group.size, group.output
    # Chunk v belongs to the rank that lies v after the root.
    for level in reversed(range(ceil_log2(size))):
        span = 1 << level
        receiving = np.arange(span, size, 2 * span)
        subtree = at(out, receiving, np.minimum(span, size - receiving))
        yield Round(
            Message(group.from_root(receiving - span), group.from_root(receiving), subtree, subtree)
        )
    # The ring ends before the root, which has everything and may not be written to.
    me = group.positions[:-1]
    for step in range(size - 1):
        chunk = at(out, (me - step) % size)
        yield Round(Message(group.from_root(me), group.from_root(me + 1), chunk, chunk))
