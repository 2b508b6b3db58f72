"""The semantics of each collective: the contents that buffers must have before and after it.

Plans are verified against this specification, which states the result of a collective
independently of its algorithms.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan import specs
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.plan.plan import Buffer
from collplan.specs.collectives.by_kind import ByKind
from collplan.specs.syntax.tables import ends_of


@dataclass(frozen=True, eq=False)
class Contents:
    """Contents of intervals of buffers, with one row per interval.

    Element j of an interval is the combination of elements ``logical + j`` of the contributions of
    ranks ``first`` to ``last - 1``, in this order.

    Parameters
    ----------
    rank, buffer : ndarray of int64, shape (n,)
        Rank and `Buffer` in which the interval lies.
    offset, count : ndarray of int64, shape (n,)
        First element and number of elements of the interval.
    first, last : ndarray of int64, shape (n,)
        First rank that contributes, and the rank after the last one.
    logical : ndarray of int64, shape (n,)
        First element in the contributions.
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

    def of_first(self, n_ranks: int) -> Contents:
        """Return the rows of the first `n_ranks` ranks."""
        return self.take(self.rank < n_ranks)

    def take(self, rows: Bools) -> Contents:
        """Return the rows that are marked."""
        return Contents(**{name: column[rows] for name, column in vars(self).items()})


def _contents(**columns: Ints | int) -> Contents:
    n = np.broadcast(*columns.values()).size
    spread = {name: np.full(n, column, dtype=np.int64) for name, column in columns.items()}
    spread.setdefault("logical", np.zeros(n, dtype=np.int64))
    spread.setdefault("first", spread["rank"])
    spread.setdefault("last", spread["first"] + 1)
    kept = spread["count"] > 0
    return Contents(**{name: column[kept] for name, column in spread.items()})


def pair_layout(collective: specs.Collective, size: int) -> tuple[Ints, Ints, Ints]:
    """Return counts and displacements of the blocks of a pairwise collective.

    Rows are senders, and columns are receivers.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.

    Returns
    -------
    counts : ndarray of int64, shape (size, size)
        Number of elements.
    given, received : ndarray of int64, shape (size, size)
        Displacements in the sender's and in the receiver's buffer, in elements.
    """
    layout = collective.pair_layout(size)
    if layout is not None:
        return layout
    counts = np.full((size, size), collective.count, dtype=np.int64)
    return counts, np.cumsum(counts, axis=1) - counts, np.cumsum(counts, axis=0) - counts


def contribution_counts(collective: specs.Collective, size: int) -> Ints:
    """Return the number of elements that each rank contributes, including gaps between blocks.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.

    Returns
    -------
    ndarray of int64, shape (size,)
    """
    edges = collective.edge_layout(size)
    if edges is not None:
        return edges.send_sizes
    if collective.is_pairwise:
        layout = collective.pair_layout(size)
        if layout is None:
            return np.full(size, size * collective.count)
        return ends_of(layout[1], layout[0])
    counts, displs = collective.block_layout(size)
    if collective.sends_blocks:
        counts = np.full(size, ends_of(displs, counts))
    return np.where(_takes_part(collective.sender, collective, size), counts, 0)


def precondition(collective: specs.Collective, size: int) -> Contents:
    """Return the locations of all ranks' contributions before the collective.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.

    Returns
    -------
    Contents
    """
    ranks = np.arange(size)
    in_recv = np.full(size, collective.has_one_buffer)
    if collective.in_place and collective.sender == "all":
        in_recv = _takes_part(collective.receiver, collective, size)
    offset = np.zeros(size, dtype=np.int64)
    if collective.receives_blocks and not collective.sends_blocks:
        offset = np.where(in_recv, collective.block_layout(size)[1], 0)
    buffer = np.where(in_recv, Buffer.RECV, Buffer.SEND)
    counts = contribution_counts(collective, size)
    return _contents(rank=ranks, buffer=buffer, offset=offset, count=counts)


def _takes_part(part: str, collective: specs.Collective, size: int) -> Bools:
    ranks = np.arange(size)
    return ranks == collective.root if part == "root" else ranks >= 0


def postcondition(collective: specs.Collective, size: int, n_first: int | None = None) -> Contents:
    """Return the contents that receive buffers must have after the collective.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.
    n_first : int, optional
        Return only the contents of the first `n_first` ranks. It is passed on to promises that
        have this parameter.

    Returns
    -------
    Contents

    Raises
    ------
    SpecError
        If no promise is registered for the kind.
    """
    promised: Any = promise[collective.kind]
    takes_it = n_first is not None and "n_first" in inspect.signature(promised).parameters
    contents: Contents = promised(collective, size, **({"n_first": n_first} if takes_it else {}))
    return contents if n_first is None else contents.of_first(n_first)


def promised_places(collective: specs.Collective, size: int, rank: int) -> Ints | slice:
    """Return the elements of a rank's receive buffer that the collective specifies, ascending.

    The collective leaves elements in gaps between blocks unchanged.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.
    rank : int

    Returns
    -------
    slice or ndarray of int64
        A slice if the elements are consecutive, otherwise their indices.
    """
    contents = postcondition(collective, size)
    rows = np.flatnonzero(contents.rank == rank)
    rows = rows[np.argsort(contents.offset[rows], kind="stable")]
    offset, count = contents.offset[rows], contents.count[rows]
    if not len(rows):
        return slice(0, 0)
    if (offset[1:] == offset[:-1] + count[:-1]).all():
        return slice(int(offset[0]), int(offset[-1] + count[-1]))
    return csr.ranges(offset, count)


promise: Final = ByKind[Callable[[Any, int], Contents]](
    "nothing says what {} promises; register it with collplan.planner.collective.semantics.promise"
)
"""Promises by kind of collective: functions of the collective and the number of ranks.

They return the contents of receive buffers, which `received` makes."""


def received(**columns: Ints | int) -> Contents:
    """Return contents of receive buffers.

    Parameters
    ----------
    **columns : int or ndarray of int64
        Columns of `Contents`, which are broadcast against each other. By default, `offset` and
        `logical` are 0, `first` is the rank itself, and `last` is ``first + 1``, which means a
        single contribution.
    """
    return _contents(**{"buffer": int(Buffer.RECV), "offset": 0, **columns})


@promise("bcast")
def _bcast(collective: specs.Bcast, size: int) -> Contents:
    return received(rank=np.arange(size), count=collective.count, first=collective.root)


@promise("gatherv")
@promise("gather")
def _gather(collective: specs.Gather | specs.Gatherv, size: int) -> Contents:
    counts, displs = collective.block_layout(size)
    return received(
        rank=np.full(size, collective.root), offset=displs, count=counts, first=np.arange(size)
    )


@promise("scatterv")
@promise("scatter")
def _scatter(collective: specs.Scatter | specs.Scatterv, size: int) -> Contents:
    counts, displs = collective.block_layout(size)
    ranks, root = np.arange(size), collective.root
    getting = ranks[ranks != root] if collective.in_place else ranks
    return received(rank=getting, count=counts[getting], first=root, logical=displs[getting])


@promise("allgatherv")
@promise("allgather")
def _allgather(
    collective: specs.Allgather | specs.Allgatherv, size: int, n_first: int | None = None
) -> Contents:
    counts, displs = collective.block_layout(size)
    every, block = _pairs(size, n_first)
    return received(rank=every, offset=displs[block], count=counts[block], first=block)


@promise("alltoallv")
@promise("alltoall")
def _alltoall(
    collective: specs.Alltoall | specs.Alltoallv, size: int, n_first: int | None = None
) -> Contents:
    every, block = _pairs(size, n_first)
    if collective.pair_layout(size) is None:
        count = collective.count
        return received(rank=every, offset=block * count, count=count, first=block,
                        logical=every * count)  # fmt: skip
    pairs, given, taken = pair_layout(collective, size)
    return received(rank=every, offset=taken[block, every], count=pairs[block, every], first=block,
                    logical=given[block, every])  # fmt: skip


@promise("neighbor_allgather")
@promise("neighbor_allgatherv")
@promise("neighbor_alltoall")
@promise("neighbor_alltoallv")
def _neighbors(collective: specs.Collective, size: int) -> Contents:
    edges = collective.edge_layout(size)
    assert edges is not None
    return received(
        rank=edges.dest,
        offset=edges.received,
        count=edges.counts,
        first=edges.source,
        logical=edges.given,
    )


@promise("reduce")
def _reduce(collective: specs.Reduce, size: int) -> Contents:
    return received(rank=np.array([collective.root]), count=collective.count, first=0, last=size)


@promise("allreduce")
def _allreduce(collective: specs.Allreduce, size: int) -> Contents:
    return received(rank=np.arange(size), count=collective.count, first=0, last=size)


@promise("reduce_scatter")
@promise("reduce_scatter_block")
def _reduce_scatter(collective: specs.Collective, size: int) -> Contents:
    counts, displs = collective.block_layout(size)
    return received(rank=np.arange(size), count=counts, first=0, last=size, logical=displs)


@promise("scan")
def _scan(collective: specs.Scan, size: int) -> Contents:
    ranks = np.arange(size)
    return received(rank=ranks, count=collective.count, first=0, last=ranks + 1)


@promise("exscan")
def _exscan(collective: specs.Exscan, size: int) -> Contents:
    ranks = np.arange(1, size)
    return received(rank=ranks, count=collective.count, first=0, last=ranks)


@promise("barrier")
def _barrier(collective: specs.Barrier, size: int) -> Contents:
    return received(rank=np.arange(0), count=0, first=0)


def _pairs(size: int, n_first: int | None) -> tuple[Ints, Ints]:
    """Return all pairs of one of the first `n_first` ranks, by default of all, with any rank."""
    n = size if n_first is None else n_first
    return np.repeat(np.arange(n), size), np.tile(np.arange(size), n)
