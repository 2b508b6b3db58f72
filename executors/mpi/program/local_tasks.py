"""Tables of the tasks without messages, for the compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.loop.extents import ExtentTable, extent_table, is_unsafe
from collplan.executors.mpi.loop.state import COMPUTE, COPY, EXTENT, LOCAL, NOTHING, REDUCE
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.program.program import Program
    from collplan.planner.arrays import Ints

Table = npt.NDArray[Any]
Index = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

LEFT_STAGE: Final = 5
"""The buffer number of memory for a left operand that has to be put aside."""
RIGHT_STAGE: Final = 6
N_BASES: Final = 7


@dataclass(frozen=True, eq=False, slots=True)
class LocalTasks:
    """What cursors work on.

    Parameters
    ----------
    kind : ndarray of int8, shape (n_tasks,)
        Of all tasks; messages keep their op.
    local : ndarray of int32, shape (n_tasks,)
        Row of each task in `rows`, 0 for messages.
    rows : ndarray of LOCAL
    reads, writes : ndarray of EXTENT
    stage_bytes : int
        Most bytes a task puts aside for one operand.
    """

    kind: Kinds
    local: npt.NDArray[np.int32]
    rows: Table
    reads: Table
    writes: Table
    stage_bytes: int

    def stage_extents(self) -> Table:
        """Return the extents that stand for memory to put operands aside."""
        extents = np.zeros(2, dtype=EXTENT)
        extents["buffer"] = (LEFT_STAGE, RIGHT_STAGE)
        extents["run"] = self.stage_bytes
        extents["repeat"] = extents["outer_repeat"] = 1
        return extents


def local_tasks(program: Program, patterns: Ints, itemsize: int) -> LocalTasks:
    """Make the tables of a program, whose operands have the lengths of their results."""
    reads = extent_table(program.reads, patterns, itemsize)
    writes = extent_table(program.writes, patterns, itemsize)
    n_written = writes.task_bytes()
    kind = program.op.astype(np.int8)
    moves = (kind == COPY) | (kind == REDUCE)
    kind[moves & (n_written == 0)] = NOTHING
    kind[(kind == COMPUTE) & (program.duration_ns == 0)] = NOTHING
    tasks = np.flatnonzero(program.op > Op.RECV)
    local = np.zeros(len(kind), dtype=np.int32)
    local[tasks] = np.arange(len(tasks))
    rows = np.zeros(len(tasks), dtype=LOCAL)
    rows["first_write"] = writes.indptr[tasks]
    rows["first_read"] = reads.indptr[tasks]
    rows["n_bytes"] = np.where(moves, n_written, 0)[tasks]
    rows["duration_ns"] = program.duration_ns[tasks]
    _find_right(rows, kind[tasks], reads, tasks)
    _find_unsafe(rows, kind[tasks], reads, writes, tasks)
    staged = rows["n_bytes"][rows["is_staged"] != 0]
    return LocalTasks(kind, local, rows, reads.rows, writes.rows, int(staged.max(initial=0)))


def _find_right(rows: Table, kind: Kinds, reads: ExtentTable, tasks: Index) -> None:
    """Say where right operands begin: behind as many bytes as the result has."""
    begin = reads.n_bytes[reads.indptr[tasks]] + rows["n_bytes"]
    first = np.searchsorted(reads.n_bytes, begin, side="right") - 1
    rows["first_right"] = np.where(kind == REDUCE, first, reads.indptr[tasks + 1])
    skip = begin - reads.n_bytes[np.minimum(first, len(reads.n_bytes) - 1)]
    rows["right_skip"] = np.where(kind == REDUCE, skip, 0)


def _find_unsafe(
    rows: Table, kind: Kinds, reads: ExtentTable, writes: ExtentTable, tasks: Index
) -> None:
    """Mark tasks that need memory besides; few tasks read and write the same buffer."""
    for i in np.flatnonzero((kind == COPY) | (kind == REDUCE)):
        task = int(tasks[i])
        read = reads.rows["buffer"][reads.indptr[task] : reads.indptr[task + 1]]
        written = writes.rows["buffer"][writes.indptr[task] : writes.indptr[task + 1]]
        if not (read[:, None] == written).any():
            continue
        if kind[i] == COPY and _is_plain(reads, task) and _is_plain(writes, task):
            continue
        rows["is_staged"][i] = is_unsafe(
            reads, writes, task, int(rows["first_right"][i]), int(rows["right_skip"][i])
        )


def _is_plain(table: ExtentTable, task: int) -> bool:
    """Return whether a task has one contiguous extent, which memmove copies whatever overlaps."""
    first, last = int(table.indptr[task]), int(table.indptr[task + 1])
    row = table.rows[first]
    return bool(last - first == 1 and row["repeat"] == row["outer_repeat"] == 1)
