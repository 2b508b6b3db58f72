"""One rank's own program: its tasks in the order of their priority, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from executors.mpi.errors import UnsupportedPlanError
from planner.errors import PlanFormatError
from planner.format_check import extent_bounds
from planner.plan import ON_START, Buffer, Extents, Op

if TYPE_CHECKING:
    from planner.plan import IntArray, Plan

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Successors:
    """Whom each task releases, in CSR: ``task[indptr[i]:indptr[i+1]]`` wait for task i."""

    indptr: Index
    task: Index


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """What one rank runs; entry i is the i-th task by (priority, row).

    Parameters
    ----------
    row : ndarray of int64, shape (n_tasks,)
        The task's row in the plan, for messages.
    op, peer, tag, stage, duration_ns : ndarray, shape (n_tasks,)
        As in the plan.
    reads, writes : Extents
        The tasks' extents; their `pattern` refers to the plan's table.
    n_before : ndarray of int64, shape (n_tasks,)
        How many releases a task waits for.
    on_start, on_completion : Successors
        Which tasks a task releases when it starts, and when it completes.
    """

    row: Index
    op: IntArray
    peer: IntArray
    tag: IntArray
    stage: IntArray
    duration_ns: IntArray
    reads: Extents
    writes: Extents
    n_before: Index
    on_start: Successors
    on_completion: Successors

    @property
    def n_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.row)


def rank_program(plan: Plan, rank: int) -> Program:
    """Take one rank's own program out of a plan.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of this rank only.
    rank : int
        Whose program.

    Returns
    -------
    Program
        With every extent checked to lie inside its buffer.

    Raises
    ------
    UnsupportedPlanError
        If the program uses shared buffers or waits for another rank's task.
    PlanFormatError
        If an extent reaches outside its buffer, or an operand is longer or shorter
        than its result.
    """
    own = np.flatnonzero(plan.rank == rank)
    row = own[np.argsort(plan.priority[own], kind="stable")]
    reads, writes = (_take_extents(extents, row) for extents in (plan.reads, plan.writes))
    for name, extents in (("reads", reads), ("writes", writes)):
        _check_extents(plan, rank, row, name, extents)
    _check_lengths(plan, row, reads, writes)
    after, before, kind = _own_dependencies(plan, row)
    started = (kind & ON_START) != 0
    n = len(row)
    return Program(
        row=row,
        op=plan.op[row],
        peer=plan.peer[row],
        tag=plan.tag[row],
        stage=plan.stage[row],
        duration_ns=plan.duration_ns[row],
        reads=reads,
        writes=writes,
        n_before=np.bincount(after, minlength=n).astype(np.int64),
        on_start=_successors(before[started], after[started], n),
        on_completion=_successors(before[~started], after[~started], n),
    )


def _take(indptr: IntArray, rows: Index) -> tuple[Index, Index]:
    """Return the new indptr and the old entries of some rows of a CSR."""
    lengths = np.diff(indptr)[rows].astype(np.int64)
    new = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    entries = np.arange(new[-1]) + np.repeat(indptr[rows] - new[:-1], lengths)
    return new, entries


def _take_extents(extents: Extents, rows: Index) -> Extents:
    indptr, entries = _take(extents.indptr, rows)
    return Extents(
        indptr=indptr,
        buffer=extents.buffer[entries],
        offset=extents.offset[entries],
        count=extents.count[entries],
        pattern=extents.pattern[entries],
    )


def _check_extents(plan: Plan, rank: int, row: Index, name: str, extents: Extents) -> None:
    """Bind hands addresses to MPI: an extent outside its buffer would be a wild write."""
    shared = np.flatnonzero(extents.buffer == Buffer.SHARED)
    if len(shared):
        task = row[extents.owner()[shared[0]]]
        raise UnsupportedPlanError(
            f"task #{task} {name} the node's shared buffer: shared buffers need an executor with "
            "shared-memory windows; compile without node-shared passes"
        )
    low, high = extent_bounds(plan.patterns, extents)
    size = plan.buffer_sizes[rank][extents.buffer]
    outside = np.flatnonzero((low < 0) | (high > size))
    if len(outside):
        i = outside[0]
        buffer = Buffer(int(extents.buffer[i])).name.lower()
        raise PlanFormatError(
            f"task #{row[extents.owner()[i]]} {name} {buffer}[{low[i]}:{high[i]}] of rank {rank}, "
            f"whose {buffer} buffer has {size[i]} elements"
        )


def _check_lengths(plan: Plan, row: Index, reads: Extents, writes: Extents) -> None:
    """Engines follow operands as far as the result reaches."""
    n_read, n_written = (
        np.diff(np.concatenate(([0], np.cumsum(part.elements(plan.patterns))))[part.indptr])
        for part in (reads, writes)
    )
    for op, times in ((Op.COPY, 1), (Op.REDUCE, 2)):
        wrong = np.flatnonzero((plan.op[row] == op) & (n_read != times * n_written))
        if len(wrong):
            i = wrong[0]
            raise PlanFormatError(
                f"task #{row[i]} is a {op.name} of {n_written[i]} elements that reads {n_read[i]}, "
                f"must read {times * n_written[i]}"
            )


def _own_dependencies(plan: Plan, row: Index) -> tuple[Index, Index, IntArray]:
    """Return (after, before, kind) of every dependency, in the program's numbering."""
    indptr, entries = _take(plan.deps.indptr, row)
    after = np.repeat(np.arange(len(row)), np.diff(indptr))
    rows_before = plan.deps.task[entries].astype(np.int64)
    by_row = np.argsort(row)
    position = np.searchsorted(row, rows_before, sorter=by_row)
    before = by_row[np.minimum(position, len(row) - 1)] if len(row) else position
    foreign = np.flatnonzero(row[before] != rows_before)
    if len(foreign):
        task, other = row[after[foreign[0]]], rows_before[foreign[0]]
        raise UnsupportedPlanError(
            f"task #{task} waits for #{other} of another rank: dependencies between ranks need "
            "shared buffers, which this executor does not have; compile without node-shared passes"
        )
    return after, before, plan.deps.kind[entries]


def _successors(before: Index, after: Index, n_tasks: int) -> Successors:
    order = np.argsort(before, kind="stable")
    counts = np.bincount(before, minlength=n_tasks)
    indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return Successors(indptr=indptr, task=after[order])
