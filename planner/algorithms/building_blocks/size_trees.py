"""Binomial trees with large blocks near the root, for blocks of different sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collplan.planner.algorithms.rounds import Group
from collplan.planner.arrays import Ints


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
