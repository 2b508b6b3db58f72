"""Chains from one rank through all others; each chain has an interval of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.arrays import Ints


def chains(size: int, fanout: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the parents and children of each round, beginning at node 0.

    Lengths of chains differ by at most one, and longer chains come first.

    Examples
    --------
    >>> [list(zip(*map(np.ndarray.tolist, ends))) for ends in chains(6, 2)]
    [[(0, 1)], [(0, 4)], [(1, 2), (4, 5)], [(2, 3)]]
    """
    n_chains = max(1, min(fanout, size - 1))
    length = (size - 1 + np.arange(n_chains)[::-1]) // n_chains
    head = np.cumsum(length) - length + 1
    for begin in head[length > 0].tolist():
        yield np.array([0]), np.array([begin])
    for step in range(1, int(length.max())):
        child = head[length > step] + step
        yield child - 1, child
