"""What a collective promises: which rank's elements must end where.

This is the specification plans are proved against; it shares no code with
the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.chunks import Ints
from planner.plan import Buffer
from specs import Collective


@dataclass(frozen=True, eq=False)
class Contents:
    """What intervals of buffers hold, one row an interval.

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


def contribution_counts(collective: Collective, size: int) -> Ints:
    """Return how many elements each rank contributes."""
    c, ranks = collective.count, np.arange(size)
    match collective.kind:
        case "bcast":
            return np.where(ranks == collective.root, c, 0)
        case "scatter":
            return np.where(ranks == collective.root, size * c, 0)
        case "reduce_scatter_block" | "alltoall":
            return np.full(size, size * c)
        case "barrier":
            return np.zeros(size, dtype=np.int64)
    return np.full(size, c)


def precondition(collective: Collective, size: int) -> Contents:
    """Return where every rank's contribution lies before the collective."""
    counts = contribution_counts(collective, size)
    ranks = np.arange(size)
    root = getattr(collective, "root", 0)
    buffer: Ints | int = Buffer.SEND
    offset: Ints | int = 0
    if collective.kind == "bcast":
        buffer = Buffer.RECV
    elif collective.is_in_place and collective.kind in ("gather", "reduce"):
        buffer = np.where(ranks == root, Buffer.RECV, Buffer.SEND)
        offset = np.where(ranks == root, root * collective.count, 0)
        if collective.kind == "reduce":
            offset = 0
    elif collective.is_in_place and collective.kind != "scatter":
        buffer = Buffer.RECV
        offset = ranks * collective.count if collective.kind == "allgather" else 0
    return _contents(rank=ranks, buffer=buffer, offset=offset, count=counts)


def postcondition(collective: Collective, size: int) -> Contents:
    """Return what the receive buffers must hold after the collective."""
    c, ranks = collective.count, np.arange(size)
    root = getattr(collective, "root", 0)
    recv = int(Buffer.RECV)
    every, block = np.repeat(ranks, size), np.tile(ranks, size)
    match collective.kind:
        case "bcast":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=root)
        case "gather":
            return _contents(rank=np.full(size, root), buffer=recv, offset=ranks * c, count=c,
                             first=ranks)  # fmt: skip
        case "scatter":
            getting = ranks[ranks != root] if collective.in_place else ranks
            return _contents(rank=getting, buffer=recv, offset=0, count=c,
                             first=root, logical=getting * c)  # fmt: skip
        case "allgather":
            return _contents(rank=every, buffer=recv, offset=block * c, count=c, first=block)
        case "alltoall":
            return _contents(rank=every, buffer=recv, offset=block * c, count=c,
                             first=block, logical=every * c)  # fmt: skip
        case "reduce":
            return _contents(rank=np.array([root]), buffer=recv, offset=0, count=c,
                             first=0, last=size)  # fmt: skip
        case "allreduce":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=0, last=size)
        case "reduce_scatter_block":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c,
                             first=0, last=size, logical=ranks * c)  # fmt: skip
        case "scan":
            return _contents(rank=ranks, buffer=recv, offset=0, count=c, first=0, last=ranks + 1)
        case "exscan":
            return _contents(rank=ranks[1:], buffer=recv, offset=0, count=c, first=0,
                             last=ranks[1:])  # fmt: skip
    assert collective.kind == "barrier", collective.kind
    return _contents(rank=np.zeros(0, dtype=np.int64), buffer=recv, offset=0, count=0)
