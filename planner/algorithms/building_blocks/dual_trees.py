"""Two trees whose roots exchange results, with blocks sent up and down at the same time.

References
----------
Träff, "A doubly-pipelined, dual-root reduction-to-all algorithm", 2021 (arXiv 2109.12626).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2

Children = dict[int, list[int]]
"""Children of every position, in the order in which it receives from them."""


@dataclass(frozen=True, eq=False, slots=True)
class DualTrees:
    """Edges of both trees, and the rounds of their first blocks; others take every third round.

    Parameters
    ----------
    roots : tuple of int
        Roots of the lower and of the upper half of all positions.
    children : dict
        Children of every position, in the order in which it receives from them.
    child, parent : ndarray of int64, shape (m,)
        Ends of all edges.
    up, down : ndarray of int64, shape (m,)
        Rounds in which each edge carries the first block up and down.
    exchange : int
        Round in which the roots exchange the first block.
    n_rounds : int
        Number of rounds for one block.
    """

    roots: tuple[int, int]
    children: Children
    child: Ints
    parent: Ints
    up: Ints
    down: Ints
    exchange: int
    n_rounds: int


def trees(size: int) -> tuple[tuple[int, int], Children]:
    """Return the roots of two post-order trees on two halves of the positions, and all children.

    The root of an interval is its last position. The positions before it form two halves, which
    have their own roots. The nearest half comes first, because its operands are next to that of
    the root.
    """
    middle = (size + 1) // 2
    return (middle - 1, size - 1), post_order(size, [(0, middle - 1), (middle, size - 1)])


def post_order(size: int, intervals: list[tuple[int, int]]) -> Children:
    """Return all children of the trees on intervals of positions; see `trees`.

    Examples
    --------
    >>> post_order(6, [(0, 5)])
    {0: [], 1: [], 2: [1, 0], 3: [], 4: [3], 5: [4, 2]}
    """
    children: Children = {node: [] for node in range(size)}
    waiting = list(intervals)
    while waiting:
        low, root = waiting.pop()
        end = low + (root - low + 1) // 2
        halves = [
            (begin, last) for begin, last in ((end, root - 1), (low, end - 1)) if begin <= last
        ]
        children[root] = [last for _, last in halves]
        waiting += halves
    return children


@lru_cache(maxsize=16)
def dual_trees(size: int) -> DualTrees:
    """Return both trees on two or more positions, with the best of the three possible phases."""
    roots, children = trees(size)
    color = dict.fromkeys(roots, 0)
    edges = []
    for node in reversed(range(size)):
        for number, child in enumerate(children[node]):
            # The edges of a position differ in color.
            color[child] = (color[node] + 1 + number) % 3
            edges.append((child, node))
    scheduled = (_scheduled(roots, children, color, edges, phase) for phase in range(3))
    return min(scheduled, key=lambda one: one.n_rounds)


def _scheduled(
    roots: tuple[int, int],
    children: Children,
    color: dict[int, int],
    edges: list[tuple[int, int]],
    phase: int,
) -> DualTrees:
    """Return both trees if edges of color c are used in rounds c - phase, modulo 3.

    Each edge, from a child to its parent, is used as soon as its data are available.
    """

    def after(number: int, color: int) -> int:
        """Return the first round after round `number` in which edges of a color are used."""
        return number + 1 + (color - phase - number - 1) % 3

    up, ready = dict[int, int](), dict[int, int]()
    for node in range(len(children)):
        ready[node] = -1
        for child in children[node]:
            up[child] = ready[node] = after(max(ready[node], ready[child]), color[child])
    exchange = after(max(ready[root] for root in roots), 0)
    down = dict.fromkeys(roots, exchange)
    for child, node in edges:
        down[child] = after(down[node], color[child])
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    times = np.array([(up[one], down[one]) for one, _ in edges], dtype=np.int64).reshape(-1, 2).T
    n_rounds = 1 + max(down.values())
    passing = ends[0], ends[1], times[0], times[1]
    return DualTrees(roots, children, *passing, exchange, n_rounds)


def filling_rounds(size: int) -> float:
    """Return the approximate number of extra rounds to fill and drain the pipeline, divided by 3.

    Each block takes three rounds.
    """
    height = floor_log2((size + 1) // 2)
    return max(0.0, (4 * height + 1) / 3 - 1)
