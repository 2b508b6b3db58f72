"""Two trees over the same ranks that each carry half of a vector.

Every rank is an inner node of at most one of the trees.

References
----------
Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35, 2009. Both trees here are in-order trees; the second tree of the paper is
mirrored or shifted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at, option_int
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.logarithms import ceil_log2

Edge = tuple[int, int]
"""Number of the tree, 0 or 1, and child of the edge."""


def in_order_parents(size: int) -> list[int]:
    """Return the parents of nodes 1 to `size` of the in-order tree; its top node has parent 0.

    The leaves are odd. The number of a parent has, instead of the lowest bit of its child, the
    next higher bit. Parents beyond `size` are skipped: their children get the next ancestor.

    Examples
    --------
    >>> in_order_parents(6)
    [2, 4, 2, 0, 6, 4]
    """
    parents = []
    for node in range(1, size + 1):
        while True:
            low = node & -node
            node = (node ^ low) | low << 1
            if node <= size:
                parents.append(node)
                break
            if low > size:
                parents.append(0)
                break
    return parents


def two_trees(size: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parents of positions 1 to size - 1 in both trees, which have root 0.

    Leaves of the first tree are odd, and leaves of the second tree are even. The second tree is
    the in-order tree on one more node, without its first leaf, with all numbers lowered by one.
    """
    first = dict(enumerate(in_order_parents(size - 1), 1))
    second = {
        node: max(0, parent - 1) for node, parent in enumerate(in_order_parents(size)) if node
    }
    return first, second


def colors(trees: tuple[dict[int, int], dict[int, int]]) -> dict[Edge, int]:
    """Return colors 0 or 1 of the edges, which differ for edges with the same parent or child.

    A rank has at most two edges to children and two to parents. Therefore edges whose colors must
    differ form paths and cycles.
    """
    edges = [(tree, child) for tree, parents in enumerate(trees) for child in parents]
    beside: dict[tuple[str, int], list[Edge]] = defaultdict(list)
    for tree, child in edges:
        beside["parent", trees[tree][child]].append((tree, child))
        beside["child", child].append((tree, child))
    found: dict[Edge, int] = {}
    for edge in edges:
        waiting = [(edge, 0)]
        while waiting:
            one, color = waiting.pop()
            if one in found:
                continue
            found[one] = color
            tree, child = one
            near = beside["parent", trees[tree][child]] + beside["child", child]
            waiting += [(other, 1 - color) for other in near if other != one]
    return found


class Edges(NamedTuple):
    """Edges of both trees on some ranks.

    Parameters
    ----------
    tree, parent, child : ndarray of int64, shape (n_edges,)
        Number of the tree, 0 or 1, and both ends of each edge.
    leads_to_leaf : ndarray of bool, shape (n_edges,)
        Whether the child has no children in this tree.
    first : ndarray of int64, shape (2, n_edges)
        Round in which each edge carries its first block in a broadcast, in two schedules.
    """

    tree: Ints
    parent: Ints
    child: Ints
    leads_to_leaf: Bools
    first: Ints

    def is_last_of_parent(self, first: Ints) -> Bools:
        """Return a mask of the last edge that each parent uses for a block in a schedule."""
        parent = csr.joint_key(self.parent, self.tree, 2)
        last = np.full(parent.max(initial=-1) + 1, -1)
        np.maximum.at(last, parent, first)
        return np.asarray(first == last[parent])


@lru_cache(maxsize=16)
def edges_of(size: int) -> Edges:
    """Return the edges of both trees on `size` ranks.

    In the first schedule, edges of color 0 are used in even rounds and edges of color 1 in odd
    rounds. In the second schedule, parities are exchanged.
    """
    trees = two_trees(size)
    found = colors(trees)
    tree, child = np.array(list(found), dtype=np.int64).reshape(-1, 2).T
    parent = np.array([trees[tree][child] for tree, child in found], dtype=np.int64)
    # The lowest bit of a parent is greater than that of its children, if numbers of the second tree
    # are raised by one.
    level = (child + tree) & -(child + tree)
    order = np.argsort(-level, kind="stable")
    color = np.array(list(found.values()), dtype=np.int64)[order]
    tree, parent, child, level = (column[order] for column in (tree, parent, child, level))
    flip = np.array([[0], [1]])
    begins = np.full((2, 2, size), -1)
    for low in np.unique(level)[::-1]:
        rows = np.flatnonzero(level == low)
        begin = begins[:, tree[rows], parent[rows]] + 1
        begins[:, tree[rows], child[rows]] = begin + (begin + color[rows] + flip) % 2
    is_inner = np.isin(csr.joint_key(child, tree, 2), csr.joint_key(parent, tree, 2))
    return Edges(tree, parent, child, ~is_inner, begins[:, tree, child])


class Schedule:
    """Rounds of a broadcast: the first tree carries even blocks, the second tree odd blocks.

    Of the two schedules of `edges_of`, the shorter one is used. Edge i carries its first block in
    round ``first[i]``.

    Parameters
    ----------
    size : int
        Number of ranks.
    n_blocks : int
        Number of blocks.
    """

    def __init__(self, size: int, n_blocks: int) -> None:
        self.edges = edges = edges_of(size)
        self._n_own = [(n_blocks + 1 - tree) // 2 for tree in (0, 1)]
        n_own = np.array(self._n_own)[edges.tree]
        n_rounds = ((edges.first + 2 * n_own - 1) * (n_own > 0)).max(axis=1, initial=0)
        shorter = int(np.argmin(n_rounds))
        self.first, self.n_rounds = edges.first[shorter], int(n_rounds[shorter])

    def rounds(self, *, backwards: bool = False) -> Iterator[tuple[Ints, Ints]]:
        """Yield, per round of a broadcast, the edges that are used and the blocks they carry.

        Parameters
        ----------
        backwards : bool
            Whether rounds are yielded in reverse order.
        """
        # An edge is used in every other round, beginning with its first one.
        key = csr.joint_key(self.edges.tree, self.first % 2, 2)
        by_turn = []
        for tree_and_parity in range(4):
            rows = np.flatnonzero(key == tree_and_parity)
            rows = rows[np.argsort(self.first[rows], kind="stable")]
            by_turn.append((rows, self.first[rows]))
        numbers = range(self.n_rounds)
        for number in reversed(numbers) if backwards else numbers:
            used = []
            for tree, n_own in enumerate(self._n_own):
                rows, first = by_turn[2 * tree + number % 2]
                low, high = np.searchsorted(first, (number - 2 * n_own, number), side="right")
                used.append(rows[low:high])
            chosen = np.sort(np.concatenate(used))
            yield chosen, number - self.first[chosen] + self.edges.tree[chosen]


def filling_rounds(size: int) -> float:
    """Return the approximate number of rounds in excess of the number of blocks."""
    return 2 * ceil_log2(size)


def spread(group: Group) -> Rounds:
    """Broadcast the output of the root, one block after another."""
    schedule = Schedule(group.size, option_int(group, "blocks", 1))
    edges = schedule.edges
    for used, block in schedule.rounds():
        yield Round(group.down(edges.parent[used], edges.child[used], at(group.output, block)))


def combine(group: Group, root: int) -> Rounds:
    """Reduce to position `root` by the reversed broadcast; in rank order if `root` is 0.

    The first block is complete first. A parent combines its own operand with the first operand
    that arrives, over the edge that it uses last in the broadcast.
    """
    n_blocks = option_int(group, "blocks", 1)
    schedule = Schedule(group.size, n_blocks)
    edges = schedule.edges
    sent = np.where(edges.leads_to_leaf, group.input, group.output)
    own = np.where(edges.is_last_of_parent(schedule.first), group.input, group.output)
    dest, source = ((end + root) % group.size for end in (edges.parent, edges.child))
    for used, mirrored in schedule.rounds(backwards=True):
        block = n_blocks - 1 - mirrored
        yield Round(
            Message(
                source[used],
                dest[used],
                at(sent[used], block),
                at(group.output, block),
                combine=at(own[used], block),
                incoming_left=None,
            )
        )
