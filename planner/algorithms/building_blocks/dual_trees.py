"""Two trees whose roots exchange results, with a block going up and another down at once.

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
"""Children of every position, in the order in which it hears from them."""


@dataclass(frozen=True, eq=False, slots=True)
class DualTrees:
    """Edges of both trees, and the rounds of their first blocks; others follow every third round.

    Parameters
    ----------
    roots : tuple of int
        The roots of the lower and of the upper half of all positions.
    children : dict
    child, parent : ndarray of int64, shape (m,)
        The ends of all edges.
    up, down : ndarray of int64, shape (m,)
        When the first block passes each edge in either direction.
    exchange : int
        When the roots exchange the first block.
    n_rounds : int
        Rounds of one block in all.
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
    """Return the roots of two trees in post-order on two halves, and all children.

    A root is the last of its positions, and those before it are halves with roots of their own:
    the nearest ones come first, as their operands stand next to the root's own.
    """
    middle = (size + 1) // 2
    return (middle - 1, size - 1), post_order(size, [(0, middle - 1), (middle, size - 1)])


def post_order(size: int, intervals: list[tuple[int, int]]) -> Children:
    """Return all children of the trees on intervals of positions, as of `trees`.

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
    """Return both trees on two or more positions, in the best of the three rounds to begin in."""
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
    """Return both trees if edges of color c are used in the rounds c - phase, modulo 3.

    Each edge, from a child to its parent, is used as soon as what it carries is there.
    """

    def after(number: int, color: int) -> int:
        """Return the first round after another one in which edges of a color are used."""
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
    """Return about how many rounds more than blocks there are, in rounds of a block: three."""
    height = floor_log2((size + 1) // 2)
    return max(0.0, (4 * height + 1) / 3 - 1)
