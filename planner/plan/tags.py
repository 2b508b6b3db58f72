"""Tags and streams: which messages share a tag, and in what order those start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.plan.plan import NONE, ON_START

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints

MAX_TAGS = 1 << 15
"""Tags a pair of ranks uses before it begins again: all that MPI promises to have."""

Edges = tuple[Ints, Ints, npt.NDArray[np.int8]]
"""Edges between rows: predecessors, successors, kinds."""


def number_messages(source: Ints, dest: Ints, n_ranks: int) -> tuple[Ints, Ints]:
    """Give every message of a pair a tag of its own, in order.

    Where a pair has more than `MAX_TAGS` messages, tags repeat, and those
    that share one form a stream, which `chain_streams` keeps in order.

    Returns
    -------
    tag, stream : ndarray of int64, shape (n_messages,)
        `stream` is -1 where the tag is a message's own.
    """
    pair = joint_key(source, dest, n_ranks)
    number = occurrence(pair)
    tag = (number % MAX_TAGS).astype(np.int32)
    stream = np.full_like(tag, NONE)
    if number.max(initial=0) >= MAX_TAGS:
        crowded = np.isin(pair, pair[number >= MAX_TAGS])
        stream[crowded] = tag[crowded]
    return tag, stream


def joint_key(major: Ints, minor: Ints, n_minor: int) -> Ints:
    """Return one key for two numbers, sorted by `major`, then `minor` (below `n_minor`)."""
    return major.astype(np.int64) * n_minor + minor


def occurrence(keys: Ints) -> Ints:
    """Return how many equal keys stand before each.

    Examples
    --------
    >>> occurrence(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_first)
    count = np.empty_like(keys)
    count[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return count


def chain_streams(op: Ints, rank: Ints, peer: Ints, stream: Ints) -> Edges:
    """Return the edges by which messages of one stream start in row order."""
    rows = np.flatnonzero(stream != NONE)
    order = rows[np.lexsort((rows, stream[rows], peer[rows], op[rows], rank[rows]))]
    same = np.ones(max(0, len(order) - 1), dtype=bool)
    for column in (stream, peer, op, rank):
        same &= column[order[1:]] == column[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    return before, after, np.full(len(before), ON_START, dtype=np.int8)


def join_edges(one: Edges, other: Edges) -> Edges:
    """Return the edges of both."""
    return (
        np.concatenate((one[0], other[0])),
        np.concatenate((one[1], other[1])),
        np.concatenate((one[2], other[2])),
    )
