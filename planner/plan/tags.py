"""Tags of messages, and the order in which messages of one tag start."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.plan.plan import NONE
from collplan.planner.plan.ragged import ON_START

MAX_TAGS = 1 << 15
"""Tags a pair of ranks uses before it begins again: all that MPI promises to have."""

Edges = tuple[Ints, Ints, Ints]
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
    pair = csr.joint_key(source, dest, n_ranks)
    number = csr.occurrence(pair)
    tag = (number % MAX_TAGS).astype(np.int32)
    stream = np.full_like(tag, NONE)
    if number.max(initial=0) >= MAX_TAGS:
        crowded = np.isin(pair, pair[number >= MAX_TAGS])
        stream[crowded] = tag[crowded]
    return tag, stream


def chain_streams(op: Ints, rank: Ints, peer: Ints, stream: Ints) -> Edges:
    """Return the edges by which messages of one stream start in row order."""
    rows = np.flatnonzero(stream != NONE)
    order = rows[np.lexsort((rows, stream[rows], peer[rows], op[rows], rank[rows]))]
    same = ~csr.run_starts(*(column[order] for column in (stream, peer, op, rank)))[1:]
    before, after = order[:-1][same], order[1:][same]
    return before, after, np.full(len(before), ON_START, dtype=np.int8)


def join_edges(one: Edges, other: Edges) -> Edges:
    """Return the edges of both."""
    before, after, kind = map(np.concatenate, zip(one, other, strict=True))
    return before, after, kind
