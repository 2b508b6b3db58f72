"""The promise of each collective: which rank's elements must end where.

This is the specification plans are proved against; it shares no code with
the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.plan.plan import Buffer
from collplan.specs import Collective


@dataclass(frozen=True, eq=False)
class Contents:
    """Contents of intervals of buffers, one row per interval.

    Element j of the interval at `offset` holds the combination of elements
    ``logical + j`` of the contributions of ranks ``first`` to ``last - 1``, in
    that order.

    Parameters
    ----------
    rank, buffer, offset, count, first, last, logical : ndarray of int64, shape (n,)
    """

    rank: Ints
    buffer: Ints
    offset: Ints
    count: Ints
    first: Ints
    last: Ints
    logical: Ints

    def __len__(self) -> int:
        return len(self.rank)


def _contents(**columns: Ints | int) -> Contents:
    arrays = np.broadcast_arrays(*(np.atleast_1d(column) for column in columns.values()))
    spread = dict(zip(columns, (array.astype(np.int64) for array in arrays), strict=True))
    n = len(arrays[0])
    spread.setdefault("logical", np.zeros(n, dtype=np.int64))
    spread.setdefault("first", spread["rank"])
    spread.setdefault("last", spread["first"] + 1)
    kept = spread["count"] > 0
    return Contents(**{name: column[kept] for name, column in spread.items()})


def block_layout(collective: Collective, size: int) -> tuple[Ints, Ints]:
    """Return count and displacement of every rank's block in a vector of all blocks."""
    counts = np.array(collective.block_counts(size), dtype=np.int64)
    return counts, np.cumsum(counts) - counts


def pair_layout(collective: Collective, size: int) -> tuple[Ints, Ints, Ints]:
    """Return what every rank (row) has for every rank (column) of an alltoall.

    Returns
    -------
    counts, given, received : ndarray of int64, shape (size, size)
        Elements, their displacement in the sender's buffer, and in the receiver's.
    """
    pairs = collective.pair_counts(size)
    if pairs is None:
        counts = np.full((size, size), collective.count, dtype=np.int64)
    else:
        counts = np.array(pairs, dtype=np.int64).reshape(size, size)
    return counts, np.cumsum(counts, axis=1) - counts, np.cumsum(counts, axis=0) - counts


def contribution_counts(collective: Collective, size: int) -> Ints:
    """Return how many elements each rank contributes."""
    ranks = np.arange(size)
    match collective.kind:
        case "bcast":
            return np.where(ranks == collective.root, collective.count, 0)
        case "gather" | "allgather":
            return block_layout(collective, size)[0]
        case "scatter":
            return np.where(ranks == collective.root, block_layout(collective, size)[0].sum(), 0)
        case "reduce_scatter_block":
            return np.full(size, block_layout(collective, size)[0].sum())
        case "alltoall":
            return np.asarray(pair_layout(collective, size)[0].sum(axis=1))
        case "barrier":
            return np.zeros(size, dtype=np.int64)
    return np.full(size, collective.count)


def precondition(collective: Collective, size: int) -> Contents:
    """Return where every rank's contribution lies before the collective."""
    counts = contribution_counts(collective, size)
    ranks = np.arange(size)
    kind, in_place = collective.kind, collective.is_in_place
    at_root = ranks == getattr(collective, "root", 0)
    in_recv = np.full(size, in_place)
    if kind in ("gather", "reduce"):
        in_recv &= at_root
    elif kind == "scatter":
        in_recv &= False
    elif kind == "bcast":
        in_recv |= True
    offset: Ints | int = 0
    if kind in ("gather", "allgather"):
        offset = np.where(in_recv, block_layout(collective, size)[1], 0)
    buffer = np.where(in_recv, Buffer.RECV, Buffer.SEND)
    return _contents(rank=ranks, buffer=buffer, offset=offset, count=counts)


def postcondition(collective: Collective, size: int) -> Contents:
    """Return what the receive buffers must hold after the collective."""
    ranks, root = np.arange(size), getattr(collective, "root", 0)
    recv = int(Buffer.RECV)
    every, block = np.repeat(ranks, size), np.tile(ranks, size)
    counts, displs = block_layout(collective, size)
    match collective.kind:
        case "gather":
            return _contents(rank=np.full(size, root), buffer=recv, offset=displs, count=counts,
                             first=ranks)  # fmt: skip
        case "scatter":
            getting = ranks[ranks != root] if collective.in_place else ranks
            return _contents(rank=getting, buffer=recv, offset=0, count=counts[getting],
                             first=root, logical=displs[getting])  # fmt: skip
        case "allgather":
            return _contents(rank=every, buffer=recv, offset=displs[block], count=counts[block],
                             first=block)  # fmt: skip
        case "alltoall":
            pairs, given, received = pair_layout(collective, size)
            return _contents(rank=every, buffer=recv, offset=received[block, every],
                             count=pairs[block, every], first=block,
                             logical=given[block, every])  # fmt: skip
        case "reduce_scatter_block":
            return _contents(rank=ranks, buffer=recv, offset=0, count=counts,
                             first=0, last=size, logical=displs)  # fmt: skip
        case "barrier":
            return _contents(rank=ranks[:0], buffer=recv, offset=0, count=0)
    c = collective.count
    match collective.kind:
        case "bcast":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=root)
        case "reduce":
            return _contents(rank=ranks[[root]], buffer=recv, offset=0, count=c,
                             first=0, last=size)  # fmt: skip
        case "allreduce":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=0, last=size)
        case "scan":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=0, last=ranks + 1)
    assert collective.kind == "exscan", collective.kind
    return _contents(rank=ranks[1:], buffer=recv, offset=0, count=c, first=0, last=ranks[1:])
