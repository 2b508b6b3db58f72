"""Two trees over the same ranks that each carry half of a vector.

Every rank is an inner node of at most one of the trees.

References
----------
Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35, 2009. Both trees here are in-order trees; the second tree of the paper is
mirrored or shifted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at, option_int
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.logarithms import ceil_log2


class Turns:
    """Edges that carry a block every `period` rounds, each from a first round on.

    Parameters
    ----------
    first : ndarray of int64, shape (n_edges,)
        Round in which each edge carries block 0.
    period : int
        Number of rounds from one block of an edge to its next one.
    n_blocks : int
        Number of blocks that each edge carries.
    rows : ndarray of int64, optional
        Edges to take into account; by default all.

    Examples
    --------
    >>> turns = Turns(np.array([0, 2, 1]), 2, 2)
    >>> [tuple(column.tolist() for column in turns.at(number)) for number in range(5)]
    [([0], [0]), ([2], [0]), ([0, 1], [1, 0]), ([2], [1]), ([1], [1])]
    """

    def __init__(self, first: Ints, period: int, n_blocks: int, rows: Ints | None = None) -> None:
        self._first, self._period, self._n_blocks = first, period, n_blocks
        rows = np.arange(len(first)) if rows is None else rows
        rows = rows[np.argsort(first[rows], kind="stable")]
        residue = first[rows] % period
        self._rows = [rows[residue == number] for number in range(period)]
        self._begins = [first[some] for some in self._rows]

    def at(self, number: int) -> tuple[Ints, Ints]:
        """Return the edges that carry a block in a round, ascending, and the block of each."""
        turn = number % self._period
        most = number - self._period * self._n_blocks
        low, high = np.searchsorted(self._begins[turn], (most, number), side="right")
        used = np.sort(self._rows[turn][low:high])
        return used, (number - self._first[used]) // self._period


def in_order_parents(size: int) -> Ints:
    """Return the parents of nodes 1 to `size` of the in-order tree; the top has parent 0.

    Its leaves are odd. The parent of a node has the next higher bit set instead of its lowest
    one. Parents beyond `size` are skipped.

    Examples
    --------
    >>> in_order_parents(6).tolist()
    [2, 4, 2, 0, 6, 4]
    """
    parents = np.arange(1, size + 1)
    climbing = np.arange(size)
    while len(climbing):
        node = parents[climbing]
        low = node & -node
        node = (node ^ low) | low << 1
        parents[climbing] = np.where(low > size, 0, node)
        climbing = climbing[(node > size) & (low <= size)]
    return parents


def two_trees(size: int) -> Ints:
    """Return the parents of positions 1 to size - 1 in both trees, shape (2, size - 1).

    The root of both trees is 0. Leaves of the first tree are odd, and those of the second even:
    the second tree has one number more, all numbers reduced by one, and not its first leaf.
    """
    first, second = in_order_parents(size - 1), in_order_parents(size)
    return np.stack((first, np.maximum(0, second[1:] - 1)))


def colors(parents: Ints) -> Ints:
    """Return 0 or 1 for every edge, which differs for two edges of one parent or one child.

    A rank has at most two edges to children and two to parents. Therefore the edges that must
    differ form paths and cycles, whose first edges have color 0.

    Parameters
    ----------
    parents : ndarray of int64, shape (2, size - 1)
        The other end of every edge: parents of all positions except 0, in both trees.

    Returns
    -------
    ndarray of int64, shape (2, size - 1)
    """
    n_edges, half = parents.size, parents.shape[1]
    number, order = np.arange(n_edges), np.argsort(parents, axis=None, kind="stable")
    has_sibling = np.diff(parents.ravel()[order]) == 0
    sibling = number.copy()
    sibling[order[:-1][has_sibling]] = order[1:][has_sibling]
    sibling[order[1:][has_sibling]] = order[:-1][has_sibling]
    # An edge and its sibling differ in color, and so do both edges of the sibling's child. The
    # second one of these therefore has the color of the first edge.
    end = np.where(sibling == number, number, (sibling + half) % max(1, n_edges))
    least = number.copy()
    for _ in range(ceil_log2(n_edges) + 1):
        least = np.minimum(least, least[end])
        end = end[end]
    # Repeated steps lead to the end of a path, or around a cycle. The end, or the first edge of
    # the cycle, is the name of all edges of one color. A path or cycle has two names; the one
    # with its first edge stands for color 0.
    name = np.where(sibling[end] == end, end, least)
    first = np.full(n_edges, n_edges)
    np.minimum.at(first, name, number)
    lead = first[name].reshape(parents.shape)
    return (lead > lead[::-1]).astype(np.int64)


class TwoTreeEdges(NamedTuple):
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
def edges_of(size: int) -> TwoTreeEdges:
    """Return the edges of both trees on `size` ranks.

    In the first schedule, edges of color 0 are used in even rounds and edges of color 1 in odd
    rounds. In the second schedule, parities are exchanged.
    """
    parents = two_trees(size)
    tree, place = np.divmod(np.arange(parents.size), max(1, size - 1))
    child = place + 1
    # Parents have larger lowest bits than their children; those of the second tree by one more.
    level = (child + tree) & -(child + tree)
    order = np.argsort(-level, kind="stable")
    columns = tree, parents.ravel(), child, level, colors(parents).ravel()
    tree, parent, child, level, color = (column[order] for column in columns)
    flip = np.array([[0], [1]])
    begins = np.full((2, 2, size), -1)
    for low in np.unique(level)[::-1]:
        rows = np.flatnonzero(level == low)
        begin = begins[:, tree[rows], parent[rows]] + 1
        begins[:, tree[rows], child[rows]] = begin + (begin + color[rows] + flip) % 2
    is_inner = np.isin(csr.joint_key(child, tree, 2), csr.joint_key(parent, tree, 2))
    return TwoTreeEdges(tree, parent, child, ~is_inner, begins[:, tree, child])


class TreeSchedule:
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

    def rounds(self, rows: Ints, *, backwards: bool = False) -> Iterator[tuple[Ints, Ints]]:
        """Yield the edges that are used in each round of a broadcast, and their blocks.

        Parameters
        ----------
        rows : ndarray of int64
            Edges to take into account.
        backwards : bool
            Whether the last round comes first.
        """
        by_tree = [
            Turns(self.first, 2, n_own, rows[self.edges.tree[rows] == tree])
            for tree, n_own in enumerate(self._n_own)
        ]
        numbers = range(self.n_rounds)
        for number in reversed(numbers) if backwards else numbers:
            chosen = np.sort(np.concatenate([turns.at(number)[0] for turns in by_tree]))
            yield chosen, number - self.first[chosen] + self.edges.tree[chosen]


def filling_rounds(size: int) -> float:
    """Return the approximate number of rounds in excess of the number of blocks."""
    return 2 * ceil_log2(size)


def spread(group: Group) -> Rounds:
    """Broadcast the output of the root, one block after another."""
    schedule = TreeSchedule(group.size, option_int(group, "blocks", 1))
    edges = schedule.edges
    ends = group.from_root(edges.parent), group.from_root(edges.child)
    for used, block in schedule.rounds(group.needed(np.arange(len(edges.child)), *ends)):
        yield Round(group.down(edges.parent[used], edges.child[used], at(group.output, block)))


def combine(group: Group, root: int) -> Rounds:
    """Reduce to position `root` by the reversed broadcast; in rank order if `root` is 0.

    The first block is complete first. A parent combines its own operand with the first operand
    that arrives, over the edge that it uses last in the broadcast.
    """
    n_blocks = option_int(group, "blocks", 1)
    schedule = TreeSchedule(group.size, n_blocks)
    edges = schedule.edges
    sent = np.where(edges.leads_to_leaf, group.input, group.output)
    own = np.where(edges.is_last_of_parent(schedule.first), group.input, group.output)
    dest, source = ((end + root) % group.size for end in (edges.parent, edges.child))
    rows = group.needed(np.arange(len(dest)), source, dest)
    for used, mirrored in schedule.rounds(rows, backwards=True):
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
