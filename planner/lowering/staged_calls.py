"""Contiguous memory for calls of MPI's collectives.

A call reads one contiguous piece of memory, and writes another one that does not overlap it, as
MPI's collectives do with vectors and blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.lowering.tables import LocalTable
from collplan.planner.plan import pieces
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op


def stage_calls(steps: LocalTable, buffer_sizes: Ints) -> tuple[LocalTable, Ints]:
    """Stage data of calls in scratch if they lie in several pieces, or if reads and writes overlap.

    Parameters
    ----------
    steps : LocalTable
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements per buffer.

    Returns
    -------
    LocalTable
        The steps, with copies right before and after staged calls.
    ndarray of int64, shape (n_ranks, 3)
        Elements per buffer, including the scratch of staged data.
    """
    calls = np.flatnonzero(steps.op == Op.CALL)
    if not len(calls):
        return steps, buffer_sizes
    read, write = (pieces.recompressed(side.take(calls)) for side in (steps.read, steps.write))
    is_read_staged = _is_scattered(read) | _overlap(read, write)
    is_write_staged = _is_scattered(write)
    sizes, rank = buffer_sizes.copy(), steps.rank[calls]
    staged_read, sizes = _move(read, rank, is_read_staged, sizes)
    staged_write, sizes = _move(write, rank, is_write_staged, sizes)
    before = _copies(steps, calls, read, staged_read).select(is_read_staged)
    after = _copies(steps, calls, staged_write, write).select(is_write_staged)
    called = LocalTable(
        **{
            **vars(steps),
            "read": pieces.replaced(steps.read, calls, staged_read),
            "write": pieces.replaced(steps.write, calls, staged_write),
        }
    )
    order = np.concatenate(
        (calls[is_read_staged], np.arange(len(steps.op)), calls[is_write_staged])
    )
    turn = np.repeat((0, 1, 2), (len(before.op), len(steps.op), len(after.op)))
    table = LocalTable.stack((before, called, after))
    return table.take(np.lexsort((turn, order))), sizes


def _is_scattered(side: Pieces) -> Bools:
    """Mark rows with several pieces, or with a piece that repeats with gaps."""
    repeats = np.zeros(len(side), dtype=bool)
    repeats[side.owner[side.repeat > 1]] = True
    return np.asarray(repeats | (csr.lengths_of(side.indptr) > 1))


def _overlap(read: Pieces, write: Pieces) -> Bools:
    """Mark rows that read one piece and write one piece, if these overlap in the same buffer."""
    found = np.zeros(len(read), dtype=bool)
    rows = np.flatnonzero((csr.lengths_of(read.indptr) == 1) & (csr.lengths_of(write.indptr) == 1))
    low, high = read.take(rows).hulls()
    low2, high2 = write.take(rows).hulls()
    same = read.take(rows).buffer == write.take(rows).buffer
    found[rows] = same & (low < high2) & (low2 < high)
    return found


def _move(side: Pieces, rank: Ints, is_staged: Bools, sizes: Ints) -> tuple[Pieces, Ints]:
    """Return the pieces with staged rows moved to new scratch, and the buffer sizes with it."""
    rows = np.flatnonzero(is_staged)
    if not len(rows):
        return side, sizes
    counts = side.elements[rows].astype(np.int64)
    offset = sizes[rank[rows], Buffer.SCRATCH] + csr.group_offsets(rank[rows], counts)
    sizes = sizes.copy()
    np.add.at(sizes[:, Buffer.SCRATCH], rank[rows], counts)
    return pieces.replaced(side, rows, pieces.one_each(Buffer.SCRATCH, offset, counts)), sizes


def _copies(steps: LocalTable, calls: Ints, read: Pieces, write: Pieces) -> LocalTable:
    """Return a copy for every call, in the round of the call."""
    none = np.full(len(calls), NONE, dtype=np.int32)
    columns: dict[str, Any] = {
        name: getattr(steps, name)[calls] for name in ("phase", "round", "rank")
    }
    op = np.full(len(calls), Op.COPY, dtype=np.int8)
    return LocalTable(**columns, op=op, peer=none, tag=none, read=read, write=write)
