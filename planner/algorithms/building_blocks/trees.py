"""Complete binary trees, chains and k-nomial trees, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collplan.planner.algorithms.rounds import Group, option_int
from collplan.planner.arrays import Bools, Ints
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


@dataclass(frozen=True, eq=False, slots=True)
class KnomialEdges:
    """Edges of a k-nomial tree that are used in one round.

    Parameters
    ----------
    parent, child : ndarray of int64, shape (m,)
        Ends of each edge, relative to the root.
    n : ndarray of int64, shape (m,)
        Number of nodes of the subtree below each edge. Their numbers begin with the child.
    """

    parent: Ints
    child: Ints
    n: Ints


def radix_of(group: Group) -> int:
    """Return the option `radix`, limited to the size of the group.

    Every larger radix gives the same tree, in which all nodes are children of the root.
    """
    return min(option_int(group, "radix", 2), max(2, group.size))


def spans(size: int, radix: int) -> list[int]:
    """Return the distance between a node and its first child per level, from the leaves up.

    Examples
    --------
    >>> spans(10, 3)
    [1, 3, 9]
    """
    found = [1] if size > 1 else []
    while found and found[-1] * radix < size:
        found.append(found[-1] * radix)
    return found


def knomial_tree(group: Group, *, is_up: bool) -> Iterator[KnomialEdges]:
    """Yield the edges of every round, from the root down or up to the root.

    On the way up, each node receives from its nearest child first, so that the data that it has
    received always belong to consecutive nodes.
    """
    size, radix = group.size, radix_of(group)
    levels = spans(size, radix)
    for span in levels if is_up else reversed(levels):
        holders = np.arange(0, size, span * radix)
        for number in range(1, radix):
            parent = holders[holders + number * span < size]
            child = parent + number * span
            yield KnomialEdges(parent, child, np.minimum(span, size - child))


def has_children(node: Ints, size: int, radix: int) -> Bools:
    """Return a mask of the nodes that have children."""
    return np.asarray((node % radix == 0) & (node + 1 < size))


class Merges(NamedTuple):
    """Pairs of runs of ranks that merge in one round.

    The head of the run with fewer elements sends to the head of the other run.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n_merges,)
        Heads that send and receive.
    first, n : ndarray of int64, shape (n_merges,)
        First rank and length of the run whose head sends.
    """

    source: Ints
    dest: Ints
    first: Ints
    n: Ints


def size_tree(counts: Ints, root: int) -> list[Merges]:
    """Return the merges of a gather for each of its ⌈log₂ p⌉ rounds.

    In round k, neighboring runs of 2^k ranks merge. The head of the run with more elements
    becomes the head of both, or the head of the first run if both have the same number. If one of
    the heads is the root, it remains the head.

    Examples
    --------
    >>> [(m.source.tolist(), m.dest.tolist()) for m in size_tree(np.array([1, 1, 9, 1]), 0)]
    [([1, 3], [0, 2]), ([2], [0])]
    """
    size = len(counts)
    head, weight, rounds = np.arange(size), np.asarray(counts), []
    span = 1
    while span < size:
        n = len(head) // 2 * 2
        left, right = head[:n:2], head[1:n:2]
        leads = (weight[:n:2] >= weight[1:n:2]) & (right != root) | (left == root)
        first = np.arange(n // 2) * 2 * span + leads * span
        dest = np.where(leads, left, right)
        merges = (np.where(leads, right, left), dest, first, np.minimum(span, size - first))
        rounds.append(Merges(*merges))
        head = np.concatenate((dest, head[n:]))
        weight = np.concatenate((weight[:n:2] + weight[1:n:2], weight[n:]))
        span *= 2
    return rounds


def staged_tree(group: Group) -> tuple[list[Merges], Ints, int]:
    """Return the merges of a group, the heads that pass on other blocks, and their scratch space.

    The root is not among these heads, because its caller's buffer holds all blocks.
    """
    rounds = size_tree(group.counts, group.root)
    return rounds, inner_heads(rounds, group.root), group.packed_scratch()


def inner_heads(rounds: list[Merges], root: int) -> Ints:
    """Return the ranks except the root that receive from other ranks."""
    heads = np.unique(np.concatenate([np.arange(0), *(merges.dest for merges in rounds)]))
    return np.asarray(heads[heads != root])
