"""Complete binary trees, numbered by level or with levels dealt to both subtrees in turn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


def binary_tree(size: int, *, is_dealt: bool) -> Iterator[tuple[Ints, Ints]]:
    """Yield the parents and children of each round from the root down, two rounds per level.

    The children of node v on level d are 2v + 1 and 2v + 2. If `is_dealt` is True, they are
    v + 2^d and v + 2^(d + 1): all nodes below node 1 are odd, and all nodes below node 2 even.

    Examples
    --------
    >>> [list(zip(*map(np.ndarray.tolist, ends))) for ends in binary_tree(7, is_dealt=True)]
    [[(0, 1)], [(0, 2)], [(1, 3), (2, 4)], [(1, 5), (2, 6)]]
    """
    for depth in range(floor_log2(size)):
        parent = np.arange((1 << depth) - 1, (2 << depth) - 1)
        for number in (1, 2):
            child = parent + (number << depth) if is_dealt else 2 * parent + number
            yield parent[child < size], child[child < size]
