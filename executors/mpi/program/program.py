"""One rank's own program: its tasks in the order of their priority, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.planner.arrays import Ints, csr
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import ON_START, Extents
from collplan.planner.plan.rank_program import restrict

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Successors:
    """Whom each task releases, in CSR: ``task[indptr[i]:indptr[i+1]]`` wait for task i."""

    indptr: Index
    task: Index


@dataclass(frozen=True, eq=False, slots=True)
class Sharing:
    """Waits of a program and of others of its node for each other, in memory that they share.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_tasks + 1,)
        Entries ``indptr[i]:indptr[i+1]`` of the next three are what task i waits for.
    rank, row, flag : ndarray of int64, shape (n_waits,)
        Whose task, its row in that rank's own program, its number among those awaited.
    awaited : ndarray of int64, shape (n_awaited,)
        Rows of this rank's own program that others wait for, by number.
    own_flag : ndarray of int64, shape (n_tasks,)
        A task's number among those awaited; -1 if nobody waits for it.
    is_gated : ndarray of bool, shape (n_tasks,)
        Whether it must not run before all ranks of the node completed the start before.
    """

    indptr: Index
    rank: Index
    row: Index
    flag: Index
    awaited: Index
    own_flag: Index
    is_gated: npt.NDArray[np.bool_]

    @property
    def waits(self) -> npt.NDArray[np.bool_]:
        """Return which tasks have to look at others' progress before they run."""
        return self.is_gated | (np.diff(self.indptr) > 0)


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """Tasks of one rank; entry i is the i-th task by (priority, row).

    Parameters
    ----------
    row : ndarray of int64, shape (n_tasks,)
        The task's row in the plan, for messages.
    op, peer, tag, stage, duration_ns : ndarray, shape (n_tasks,)
        As in the plan.
    reads, writes : Extents
        The tasks' extents.
    patterns : ndarray of int64, shape (n_patterns, 4)
        The plan's, to which the `pattern` of extents refers.
    itemsize : int
        Bytes per element.
    n_before : ndarray of int64, shape (n_tasks,)
        How many releases by tasks of this rank a task waits for.
    on_start, on_completion : Successors
        Which tasks a task releases when it starts, and when it completes.
    sharing : Sharing
        What other ranks of the node have to do with it.
    """

    row: Index
    op: Ints
    peer: Ints
    tag: Ints
    stage: Ints
    duration_ns: Ints
    reads: Extents
    writes: Extents
    patterns: Ints
    itemsize: int
    n_before: Index
    on_start: Successors
    on_completion: Successors
    sharing: Sharing

    @property
    def n_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.row)

    @property
    def is_requested(self) -> Mask:
        """Return which tasks are requests to MPI: messages and calls."""
        return np.asarray((self.op <= Op.RECV) | (self.op == Op.CALL))


def shares_memory(plan: Plan) -> bool:
    """Return whether ranks of a node share memory, as far as a plan or a program shows it."""
    touches = any((part.buffer == Buffer.SHARED).any() for part in (plan.reads, plan.writes))
    waits = len(plan.foreign) + len(plan.foreign.awaited) > 0
    return bool(touches or waits or plan.shared_sizes.any())


def rank_program(plan: Plan, rank: int) -> Program:
    """Take one rank's own program out of a plan.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of this rank only, whose format was checked: engines hand
        addresses to MPI, and follow operands as far as results reach.
    rank : int
        Whose program.

    Raises
    ------
    UnsupportedPlanError
        If it waits for another rank's task though ranks share no memory.
    """
    own = np.flatnonzero(plan.rank == rank)
    row = own[np.argsort(plan.priority[own], kind="stable")]
    reads, writes = (extents.take(row) for extents in (plan.reads, plan.writes))
    shares = shares_memory(plan)
    alone = restrict(plan, rank) if shares else plan
    own_row = np.searchsorted(own, row) if shares else row
    after, before, kind = _own_dependencies(alone, own_row)
    started = (kind & ON_START) != 0
    n = len(row)
    columns = "op", "peer", "tag", "stage", "duration_ns"
    return Program(
        row=row,
        **{name: getattr(plan, name)[row] for name in columns},
        reads=reads,
        writes=writes,
        patterns=plan.patterns,
        itemsize=plan.itemsize,
        n_before=np.bincount(after, minlength=n).astype(np.int64),
        on_start=_successors(before[started], after[started], n),
        on_completion=_successors(before[~started], after[~started], n),
        sharing=_sharing(alone, own_row, writes),
    )


def _own_dependencies(plan: Plan, row: Index) -> tuple[Index, Index, Ints]:
    """Return (after, before, kind) of every dependency, in the program's numbering."""
    indptr, entries = csr.take_rows(plan.deps.indptr, row)
    after = csr.row_numbers(indptr)
    rows_before = plan.deps.task[entries].astype(np.int64)
    by_row = np.argsort(row)
    position = np.searchsorted(row, rows_before, sorter=by_row)
    before = by_row[np.minimum(position, len(row) - 1)] if len(row) else position
    foreign = np.flatnonzero(row[before] != rows_before)
    if len(foreign):
        task, other = row[after[foreign[0]]], rows_before[foreign[0]]
        raise UnsupportedPlanError(
            f"task #{task} waits for #{other} of another rank, but ranks share no memory; "
            "compile with transport: shared, or pass a message"
        )
    return after, before, plan.deps.kind[entries]


def _sharing(alone: Plan, row: Index, writes: Extents) -> Sharing:
    """Return a program's waits, in its own numbering; `row` are rows of `alone`."""
    foreign, n = alone.foreign, len(row)
    # Most plans share nothing, and may have many tasks of other ranks.
    indptr, entries = np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if len(foreign):
        indptr, entries = csr.take_rows(foreign.indptr, row)
    own_flag = np.full(n, NONE, dtype=np.int64)
    if len(foreign.awaited):
        numbers = np.full(n, NONE, dtype=np.int64)
        numbers[foreign.awaited] = np.arange(len(foreign.awaited))
        own_flag = numbers[row]
    is_gated = np.zeros(n, dtype=bool)
    is_gated[writes.owner()[writes.buffer == Buffer.SHARED]] = True
    columns = foreign.rank, foreign.task, foreign.flag
    rank, task, flag = (column[entries].astype(np.int64) for column in columns)
    awaited = foreign.awaited.astype(np.int64)
    return Sharing(indptr, rank, task, flag, awaited, own_flag, is_gated)


def _successors(before: Index, after: Index, n_tasks: int) -> Successors:
    order, indptr = csr.group_by(before, n_tasks)
    return Successors(indptr=indptr, task=after[order])


def own_computations(plan: Plan, program: Program, rank: int) -> Mask:
    """Return which tasks compute in the background on the rank's own core.

    They stand for what the application does there between its start and its wait.
    """
    in_background = program.stage == Stage.BACKGROUND
    on_own_core = plan.core[program.row] == plan.rank_core[rank]
    computes: Mask = (program.op == Op.COMPUTE) & in_background & on_own_core
    return computes


def why_not_apart(program: Program, computes: Mask) -> str | None:
    """Return why a rank's own computations cannot run beside a thread, if they cannot.

    While a thread has the background, its caller cannot know what has ended there.
    """
    is_after_start = (program.stage == Stage.START) | computes
    is_before_wait = (program.stage == Stage.WAIT) | computes
    tied = computes & (program.sharing.waits | (program.sharing.own_flag >= 0))
    for successors in (program.on_start, program.on_completion):
        before = csr.row_numbers(successors.indptr)
        after = successors.task
        tied[after[computes[after] & ~is_after_start[before]]] = True
        tied[before[computes[before] & ~is_before_wait[after]]] = True
    if not tied.any():
        return None
    task = int(program.row[np.flatnonzero(tied)[0]])
    return (
        f"compute #{task} on the rank's own core waits for tasks in the background, or they for "
        "it; beside a thread only what is between start and wait can be computed"
    )


def left_to_caller(program: Program, is_threads: Mask) -> tuple[Program, int]:
    """Return a program without its caller's computations, and how long those take in ns.

    Parameters
    ----------
    program : Program
        What a rank runs.
    is_threads : ndarray of bool, shape (n_tasks,)
        Which tasks its thread runs.
    """
    computes = (program.op == Op.COMPUTE) & (program.stage == Stage.BACKGROUND) & ~is_threads
    # They end when the caller has the start again, and takes no more time for them.
    stage = np.where(computes, np.int8(Stage.WAIT), program.stage)
    duration_ns = np.where(computes, 0, program.duration_ns)
    total_ns = int(program.duration_ns[computes].sum())
    return replace(program, stage=stage, duration_ns=duration_ns), total_ns
