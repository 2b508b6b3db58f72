"""Tables of local tasks, which have no messages, and of their extents, for the compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.records import EXTENT, LOCAL
from collplan.executors.mpi.program.program import Program
from collplan.planner.arrays import Array, Ints, Longs, csr
from collplan.planner.arrays.intervals import hull
from collplan.planner.plan.plan import Op
from collplan.planner.plan.ragged import Extents

Kinds = npt.NDArray[np.int8]

LEFT_STAGE: Final = 5
"""Buffer number of the staging memory for left operands."""
RIGHT_STAGE: Final = 6
"""Buffer number of the staging memory for right operands."""
N_BASES: Final = 7


@dataclass(frozen=True, eq=False, slots=True)
class ExtentTable:
    """Non-empty extents of tasks, in CSR format.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_tasks + 1,)
        Rows ``indptr[i]:indptr[i + 1]`` belong to task i.
    rows : ndarray of EXTENT, shape (n_rows,)
    n_bytes : ndarray of int64, shape (n_rows + 1,)
        Total bytes of all rows before each row.
    """

    indptr: Longs
    rows: Array
    n_bytes: Longs

    def of(self, task: int) -> Array:
        """Return the rows of a task."""
        return self.rows[self.indptr[task] : self.indptr[task + 1]]


def extent_table(extents: Extents, patterns: Ints, itemsize: int) -> ExtentTable:
    """Return the extents of a program as rows for cursors.

    Contiguous repeats become one run. If only one level repeats, it is the inner one.

    Parameters
    ----------
    extents : Extents
    patterns : ndarray of int64, shape (n_patterns, 4)
        Inner stride and repeat, outer stride and repeat, in elements.
    itemsize : int
        Bytes per element.
    """
    stride, repeat, outer_stride, outer_repeat = patterns[extents.pattern].T.astype(np.int64)
    rows = np.empty(len(extents), dtype=EXTENT)
    rows["buffer"] = extents.buffer
    rows["offset"] = extents.offset * itemsize
    run = extents.count * np.int64(itemsize)
    stride, outer_stride = stride * itemsize, outer_stride * itemsize
    stride, repeat, outer_stride, outer_repeat = _merge_levels(
        stride, repeat, outer_stride, outer_repeat
    )
    for _ in range(2):
        continues = (stride == run) & (repeat > 1)
        run = np.where(continues, run * repeat, run)
        stride = np.where(continues, outer_stride, stride)
        repeat = np.where(continues, outer_repeat, repeat)
        outer_repeat = np.where(continues, 1, outer_repeat)
    rows["run"], rows["stride"], rows["repeat"] = run, stride, repeat
    rows["outer_stride"], rows["outer_repeat"] = outer_stride, outer_repeat
    n_bytes = rows["run"] * rows["repeat"] * rows["outer_repeat"]
    has = n_bytes > 0
    kept = csr.running_total(has)
    return ExtentTable(
        indptr=kept[extents.indptr], rows=rows[has], n_bytes=csr.running_total(n_bytes[has])
    )


def _merge_levels(stride: Longs, repeat: Longs, outer_stride: Longs, outer_repeat: Longs) -> Any:
    """Merge two levels of repeats into one level if they are equivalent to one level.

    This is the case if the inner level has one repeat, or if the outer level continues the inner
    level at the same distance.
    """
    is_lone = repeat == 1
    goes_on = (outer_stride == stride * repeat) & ~is_lone
    merged = (is_lone | goes_on) & (outer_repeat > 1)
    return (
        np.where(is_lone & merged, outer_stride, stride),
        np.where(merged, repeat * outer_repeat, repeat),
        outer_stride,
        np.where(merged, 1, outer_repeat),
    )


def is_unsafe(read: Array, out: Array, first_right: int, right_skip: int) -> bool:
    """Return whether a task that runs piece by piece could overwrite operands before it reads them.

    An operand at exactly the same place as the result is safe, because each piece is read before
    it is written.

    Parameters
    ----------
    read, out : ndarray of EXTENT
        Extents of the operands and of the result.
    first_right : int
        Row of `read` in which the right operand begins.
    right_skip : int
        Bytes at the beginning of that row that belong to the left operand.
    """
    left, right = read[: first_right + (right_skip > 0)], read[first_right:]
    for side in [left, right] if len(right) else [left]:
        is_same = right_skip == 0 and np.array_equal(side, out)
        if not is_same and _overlap(side, out):
            return True
        # With several extents, a result could overwrite the operand of a later piece.
        if is_same and len(out) > 1 and _overlap_within(out):
            return True
    return False


def bounds(rows: Array) -> tuple[Ints, Ints]:
    """Return the offset of the first byte of each extent, and the offset behind the last byte."""
    low, high = hull(rows["offset"], rows["run"], rows["stride"], rows["repeat"])
    return hull(low, high - low, rows["outer_stride"], rows["outer_repeat"])


def _overlap(a: Array, b: Array) -> bool:
    low_a, high_a = bounds(a)
    low_b, high_b = bounds(b)
    meet = (low_a[:, None] < high_b) & (low_b < high_a[:, None])
    return bool((meet & (a["buffer"][:, None] == b["buffer"])).any())


def _overlap_within(rows: Array) -> bool:
    low, high = bounds(rows)
    order = np.lexsort((low, rows["buffer"]))
    buffer, low, high = rows["buffer"][order], low[order], high[order]
    return bool(((low[1:] < high[:-1]) & (buffer[1:] == buffer[:-1])).any())


def local_tasks(program: Program) -> tuple[Kinds, npt.NDArray[np.int32], dict[str, Array]]:
    """Return the tables of a program for the compiled loop.

    Parameters
    ----------
    program : Program
        Each operand of its tasks must have the length of the result.

    Returns
    -------
    kind : ndarray of int8, shape (n_tasks,)
        Kinds of all tasks. The kind of a message is its op.
    local : ndarray of int32, shape (n_tasks,)
        Row of each task among the local tasks, or among the calls; 0 for messages.
    tables : dict of str to ndarray
        Tables by their names in the state of the loop: local tasks, their extents, and the two
        extents of staging memory.
    """
    patterns, itemsize = program.patterns, program.itemsize
    reads = extent_table(program.reads, patterns, itemsize)
    writes = extent_table(program.writes, patterns, itemsize)
    n_written = np.diff(writes.n_bytes[writes.indptr])
    kind = np.where(program.op == Op.CALL, codes.CALL, program.op).astype(np.int8)
    moves = (kind == codes.COPY) | (kind == codes.REDUCE)
    kind[moves & (n_written == 0)] = codes.NOTHING
    is_idle = (program.duration_ns == 0) & (program.function == 0)
    kind[(kind == codes.COMPUTE) & is_idle] = codes.NOTHING
    tasks = np.flatnonzero(~program.is_requested)
    local = np.zeros(len(kind), dtype=np.int32)
    local[tasks] = np.arange(len(tasks))
    calls = np.flatnonzero(program.op == Op.CALL)
    local[calls] = np.arange(len(calls))
    rows = np.zeros(len(tasks), dtype=LOCAL)
    rows["first_write"] = writes.indptr[tasks]
    rows["first_read"] = reads.indptr[tasks]
    rows["n_bytes"] = np.where(moves, n_written, 0)[tasks]
    rows["duration_ns"] = program.duration_ns[tasks]
    rows["function"] = program.function[tasks]
    _find_right(rows, kind[tasks], reads, tasks)
    _find_unsafe(rows, kind[tasks], reads, writes, tasks)
    stage_extents = np.zeros(2, dtype=EXTENT)
    stage_extents["buffer"] = (LEFT_STAGE, RIGHT_STAGE)
    stage_extents["run"] = rows["n_bytes"][rows["is_staged"] != 0].max(initial=0)
    stage_extents["repeat"] = stage_extents["outer_repeat"] = 1
    tables = {"locals": rows, "reads": reads.rows, "writes": writes.rows}
    return kind, local, tables | {"stage_extents": stage_extents}


def _find_right(rows: Array, kind: Kinds, reads: ExtentTable, tasks: Longs) -> None:
    """Fill in the starts of right operands, which follow left operands of the result's size."""
    begin = reads.n_bytes[reads.indptr[tasks]] + rows["n_bytes"]
    first = np.searchsorted(reads.n_bytes, begin, side="right") - 1
    rows["first_right"] = np.where(kind == codes.REDUCE, first, reads.indptr[tasks + 1])
    skip = begin - reads.n_bytes[np.minimum(first, len(reads.n_bytes) - 1)]
    rows["right_skip"] = np.where(kind == codes.REDUCE, skip, 0)


def _find_unsafe(
    rows: Array, kind: Kinds, reads: ExtentTable, writes: ExtentTable, tasks: Longs
) -> None:
    """Mark the tasks that need staging memory.

    Only tasks that read and write the same buffer, which are few, are examined.
    """
    for i in np.flatnonzero((kind == codes.COPY) | (kind == codes.REDUCE)):
        task = int(tasks[i])
        read, written = reads.of(task), writes.of(task)
        if not (read["buffer"][:, None] == written["buffer"]).any():
            continue
        if kind[i] == codes.COPY and _is_plain(read) and _is_plain(written):
            continue
        first_right = int(rows["first_right"][i] - reads.indptr[task])
        rows["is_staged"][i] = is_unsafe(read, written, first_right, int(rows["right_skip"][i]))


def _is_plain(rows: Array) -> bool:
    """Return whether the rows are one contiguous extent, which memmove copies even with overlap."""
    return bool(len(rows) == 1 and rows["repeat"][0] == rows["outer_repeat"][0] == 1)
