"""Two trees whose roots exchange results, with blocks sent up and down at the same time.

References
----------
Träff, "A doubly-pipelined, dual-root reduction-to-all algorithm", 2021 (arXiv 2109.12626).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2

Children = Ints
"""Children of every position, in the order in which it receives from them, shape (size, 2).

The number of a missing child is -1.
"""


@dataclass(frozen=True, eq=False, slots=True)
class DualTrees:
    """Edges of both trees, and the rounds of their first blocks; others take every third round.

    Parameters
    ----------
    roots : tuple of int
        Roots of the lower and of the upper half of all positions.
    children : ndarray of int64, shape (size, 2)
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
    >>> post_order(6, [(0, 5)]).tolist()
    [[-1, -1], [-1, -1], [1, 0], [-1, -1], [3, -1], [4, 2]]
    """
    children = np.full((size, 2), -1)
    low, root = np.array(intervals).T
    while len(root):
        end = low + (root - low + 1) // 2
        begins, lasts = np.array(((end, low), (root - 1, end - 1)))
        exists = begins <= lasts
        own = np.where(exists, lasts, -1)
        # A position with one child has it in the first place.
        children[root] = np.where(exists[0], own, own[::-1]).T
        low, root = begins[exists], lasts[exists]
    return children


@lru_cache(maxsize=16)
def dual_trees(size: int) -> DualTrees:
    """Return both trees on two or more positions, with the best of the three possible phases."""
    roots, children = trees(size)
    color, levels, level = np.zeros(size, dtype=np.int64), list[Ints](), np.array(roots)
    while len(level):
        levels.append(level)
        for number, child in enumerate(children[level].T):
            # The edges of a position differ in color.
            has = child >= 0
            color[child[has]] = (color[level[has]] + 1 + number) % 3
        level = children[level][children[level] >= 0]
    scheduled = (_scheduled(roots, children, color, levels, phase) for phase in range(3))
    return min(scheduled, key=lambda one: one.n_rounds)


def _scheduled(
    roots: tuple[int, int], children: Children, color: Ints, levels: Sequence[Ints], phase: int
) -> DualTrees:
    """Return both trees if edges of color c are used in rounds c - phase, modulo 3.

    Each edge, from a child to its parent, is used as soon as its data are available. `color` is
    that of the edge above every position, and `levels` has the positions of every depth.
    """

    def after(number: Ints, color: Ints) -> Ints:
        """Return the first rounds after rounds `number` in which edges of a color are used."""
        return number + 1 + (color - phase - number - 1) % 3

    up, down, ready = np.full((3, len(children)), -1)
    for level in reversed(levels):
        for below in children[level].T:
            node, child = level[below >= 0], below[below >= 0]
            ready[node] = up[child] = after(np.maximum(ready[node], ready[child]), color[child])
    top = levels[0]
    down[top] = after(ready[top].max(keepdims=True), color[top])
    for level in levels:
        for below in children[level].T:
            node, child = level[below >= 0], below[below >= 0]
            down[child] = after(down[node], color[child])
    parent, place = np.nonzero(children[::-1] >= 0)
    parent = len(children) - 1 - parent
    child = children[parent, place]
    n_rounds = 1 + int(down.max())
    passing = child, parent, up[child], down[child]
    return DualTrees(roots, children, *passing, int(down[roots[0]]), n_rounds)


def filling_rounds(size: int) -> float:
    """Return the approximate number of extra rounds to fill and drain the pipeline, divided by 3.

    Each block takes three rounds.
    """
    height = floor_log2((size + 1) // 2)
    return max(0.0, (4 * height + 1) / 3 - 1)
