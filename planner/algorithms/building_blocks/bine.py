"""Binomial negabinary (Bine) trees, and the butterflies of Bine and Swing.

References
----------
De Sensi, Pasqualoni, Piarulli, Bonato, Ba, Turisini, Domke, Hoefler, "Bine trees", SC 2025
(arXiv 2508.17311); De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher
bandwidth allreduce", NSDI 2024 (arXiv 2401.09356). Trees whose size is not a power of two are a
generalization that these papers do not have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.algorithms.building_blocks.spreading import Hop
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import ceil_log2

MOST_RANKS: Final = 8192
"""Greatest number p of ranks for messages of scattered blocks, with about p/3 runs per rank."""


class BineEdges(NamedTuple):
    """Edges of one round of a tree: parents, children, and the interval of each subtree.

    Parameters
    ----------
    parent, child : ndarray of int64, shape (n_edges,)
        Ends of each edge.
    first, n : ndarray of int64, shape (n_edges,)
        First position and number of positions of the child's subtree, which may wrap around.
    """

    parent: Ints
    child: Ints
    first: Ints
    n: Ints

    def mirrored(self, size: int) -> BineEdges:
        """Return the same edges with positions counted from the other end."""
        last = size - 1
        ends = last - self.parent, last - self.child
        return BineEdges(*ends, size - self.first - self.n, self.n)

    def moved(self, by: int) -> BineEdges:
        """Return the same edges with all positions increased by `by`."""
        return BineEdges(self.parent + by, self.child + by, self.first + by, self.n)


@lru_cache(maxsize=64)
def bine_tree(size: int) -> tuple[BineEdges, ...]:
    """Return the ⌈log₂ size⌉ rounds of a broadcast; positions are relative to the root.

    Examples
    --------
    >>> [list(zip(e.parent.tolist(), e.child.tolist())) for e in bine_tree(5)]
    [[(0, 2)], [(0, 4), (2, 3)], [(0, 1)]]
    """
    rounds, root = _tree(size, ceil_log2(size))
    found = []
    for edges in rounds:
        parent, child, first = ((ends - root) % size for ends in edges[:3])
        found.append(BineEdges(parent, child, first, edges.n))
    return tuple(found)


def inner_bine_tree(size: int) -> tuple[tuple[BineEdges, ...], Ints]:
    """Return the rounds of a tree, and the positions except the root that have children."""
    rounds = bine_tree(size)
    parents = np.unique(np.concatenate([np.arange(0), *(edges.parent for edges in rounds)]))
    return rounds, parents[parents > 0]


@lru_cache(maxsize=64)
def _tree(size: int, level: int) -> tuple[list[BineEdges], int]:
    """Return the rounds of a tree over positions 0 to size - 1, and its root.

    The root is in the larger half. The other half is a mirrored tree. Whether it lies to the right
    or to the left of the larger half alternates between levels.
    """
    if size == 1:
        nothing = np.zeros(0, dtype=np.int64)
        return [BineEdges(nothing, nothing, nothing, nothing)] * level, 0
    half = (size + 1) // 2
    rest = size - half
    (own, root), (other, child) = _tree(half, level - 1), _tree(rest, level - 1)
    child = rest - 1 - child
    at_own, at_other = (0, half) if level % 2 else (rest, 0)
    parent, below, first, n = np.array([root + at_own, child + at_other, at_other, rest])[:, None]
    rounds = [BineEdges(parent, below, first, n)]
    for one, two in zip(own, other, strict=True):
        sides = one.moved(at_own), two.mirrored(rest).moved(at_other)
        rounds.append(BineEdges(*map(np.concatenate, zip(*sides, strict=True))))
    return rounds, root + at_own


def rho(k: int) -> int:
    """Return the distance over which ranks exchange in step k, which is 1, -1, 3, -5, 11, ...

    Even ranks send to the rank at this distance after them, odd ranks to the one before them.
    """
    return int((1 - (-2) ** (k + 1)) // 3)


def peers(me: Any, size: int, k: int) -> Any:
    """Return the ranks with which `me` exchange in step k; `size` is even."""
    return (me + np.where(me % 2 == 0, rho(k), -rho(k))) % size


@lru_cache(maxsize=16)
def butterfly(size: int) -> tuple[Hop, ...]:
    """Return the hops of an allgather on an even number of ranks, from the farthest one on.

    In each of the ⌈log₂ size⌉ rounds, ranks send the blocks that their peer does not have.
    """
    held, hops = {0}, []
    for k in reversed(range(ceil_log2(size))):
        sent = sorted(d for d in held if (rho(k) - d) % size not in held)
        held |= {(rho(k) - d) % size for d in sent}
        hops.append(Hop(rho(k), np.array(sent), is_mirrored=True))
    return tuple(hops)


@lru_cache(maxsize=16)
def ways(size: int) -> tuple[tuple[int, ...], ...]:
    """Return, per distance, the steps by which a block of an even rank reaches that distance.

    Each entry has the fewest steps, in ascending order. The distances of its steps are added and
    subtracted in turn.

    Examples
    --------
    >>> ways(6)
    ((), (0,), (0, 1), (2,), (0, 2), (1,))
    """
    found: dict[int, tuple[int, ...]] = {0: ()}
    for k in range(ceil_log2(size)):
        for distance, way in list(found.items()):
            # All previous paths have lower steps, so that steps are in ascending order.
            end = (distance + (-1) ** len(way) * rho(k)) % size
            longer = (*way, k)
            if end not in found or (len(longer), longer) < (len(found[end]), found[end]):
                found[end] = longer
    return tuple(found[distance] for distance in range(size))
