"""Binomial negabinary (Bine) trees and the butterflies that Bine and Swing share.

References
----------
De Sensi, Pasqualoni, Piarulli, Bonato, Ba, Turisini, Domke, Hoefler, "Bine trees", SC 2025
(arXiv 2508.17311); De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher
bandwidth allreduce", NSDI 2024 (arXiv 2401.09356). Trees of other sizes than powers of two are
a generalization of ours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.algorithms.building_blocks.spreading import Hop
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import ceil_log2

MOST_RANKS: Final = 8192
"""Ranks up to which messages of scattered blocks are made: about p/3 runs of blocks at each."""


class Edges(NamedTuple):
    """The edges of one round of a tree: parents, children, and the interval below each child.

    Parameters
    ----------
    parent, child : ndarray of int64, shape (n_edges,)
    first, n : ndarray of int64, shape (n_edges,)
        The positions of a child's subtree, which may wrap around the end.
    """

    parent: Ints
    child: Ints
    first: Ints
    n: Ints

    def mirrored(self, size: int) -> Edges:
        """Return the same edges with positions counted from the other end."""
        last = size - 1
        ends = last - self.parent, last - self.child
        return Edges(*ends, size - self.first - self.n, self.n)

    def moved(self, by: int) -> Edges:
        """Return the same edges `by` positions further on."""
        return Edges(self.parent + by, self.child + by, self.first + by, self.n)


@lru_cache(maxsize=64)
def bine_tree(size: int) -> tuple[Edges, ...]:
    """Return the rounds of a broadcast, ⌈log₂ size⌉ of them; positions count from the root.

    Examples
    --------
    >>> [list(zip(e.parent.tolist(), e.child.tolist())) for e in bine_tree(5)]
    [[(0, 2)], [(0, 4), (2, 3)], [(0, 1)]]
    """
    rounds, root = _tree(size, ceil_log2(size))
    found = []
    for edges in rounds:
        parent, child, first = ((ends - root) % size for ends in edges[:3])
        found.append(Edges(parent, child, first, edges.n))
    return tuple(found)


def inner_bine_tree(size: int) -> tuple[tuple[Edges, ...], Ints]:
    """Return the rounds of a tree, and the positions but the root that have children."""
    rounds = bine_tree(size)
    parents = np.unique(np.concatenate([np.arange(0), *(edges.parent for edges in rounds)]))
    return rounds, parents[parents > 0]


@lru_cache(maxsize=64)
def _tree(size: int, level: int) -> tuple[list[Edges], int]:
    """Return the rounds of a tree over positions 0 to size - 1, and its root.

    The root is in the larger half. The other one, its mirror image, is on its right and on its
    left in turns.
    """
    if size == 1:
        nothing = np.zeros(0, dtype=np.int64)
        return [Edges(nothing, nothing, nothing, nothing)] * level, 0
    half = (size + 1) // 2
    rest = size - half
    (own, root), (other, child) = _tree(half, level - 1), _tree(rest, level - 1)
    child = rest - 1 - child
    at_own, at_other = (0, half) if level % 2 else (rest, 0)
    parent, below, first, n = np.array([root + at_own, child + at_other, at_other, rest])[:, None]
    rounds = [Edges(parent, below, first, n)]
    for one, two in zip(own, other, strict=True):
        sides = one.moved(at_own), two.mirrored(rest).moved(at_other)
        rounds.append(Edges(*map(np.concatenate, zip(*sides, strict=True))))
    return rounds, root + at_own


def rho(k: int) -> int:
    """Return the distance over which ranks exchange in step k: 1, -1, 3, -5, 11, ...

    Even ranks send to the rank that far after them, odd ones to the one before them.
    """
    return int((1 - (-2) ** (k + 1)) // 3)


def peers(me: Any, size: int, k: int) -> Any:
    """Return the ranks that `me` exchange with in step k, of an even number of ranks."""
    return (me + np.where(me % 2 == 0, rho(k), -rho(k))) % size


@lru_cache(maxsize=16)
def butterfly(size: int) -> tuple[Hop, ...]:
    """Return the hops of an allgather on an even number of ranks, the farthest first.

    In each of ⌈log₂ size⌉ rounds, ranks send what their peer lacks.
    """
    held, hops = {0}, []
    for k in reversed(range(ceil_log2(size))):
        sent = sorted(d for d in held if (rho(k) - d) % size not in held)
        held |= {(rho(k) - d) % size for d in sent}
        hops.append(Hop(rho(k), tuple(sent), is_mirrored=True))
    return tuple(hops)


@lru_cache(maxsize=16)
def ways(size: int) -> tuple[tuple[int, ...], ...]:
    """Return the steps by which a block reaches a rank each distance after an even rank.

    The fewest steps, in ascending order; their distances count forwards and backwards in turns.

    Examples
    --------
    >>> ways(6)
    ((), (0,), (0, 1), (2,), (0, 2), (1,))
    """
    found: dict[int, tuple[int, ...]] = {0: ()}
    for k in range(ceil_log2(size)):
        for distance, way in list(found.items()):
            # All ways before have lower steps, so the one of the fewest is found in order.
            end = (distance + (-1) ** len(way) * rho(k)) % size
            longer = (*way, k)
            if end not in found or (len(longer), longer) < (len(found[end]), found[end]):
                found[end] = longer
    return tuple(found[distance] for distance in range(size))
