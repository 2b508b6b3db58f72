"""Program of one rank: its tasks as flat arrays, in the order of their priorities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.planner.arrays import Bools, Ints, Longs, csr
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import ON_START, Extents
from collplan.planner.rewrite.rank_program import restrict


@dataclass(frozen=True, eq=False, slots=True)
class Successors:
    """Tasks that wait for each task, in CSR format.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_tasks + 1,)
    task : ndarray of int64, shape (n_dependencies,)
        The tasks ``task[indptr[i]:indptr[i + 1]]`` wait for task i.
    """

    indptr: Longs
    task: Longs


@dataclass(frozen=True, eq=False, slots=True)
class Sharing:
    """Waits between this program and those of other ranks of the node, which share memory.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_tasks + 1,)
        Entries ``indptr[i]:indptr[i + 1]`` of the next three arrays are the tasks for which task i
        waits.
    rank, row, flag : ndarray of int64, shape (n_waits,)
        Rank of the awaited task, its row in the program of that rank, and its number among the
        awaited tasks of that rank.
    awaited : ndarray of int64, shape (n_awaited,)
        Rows of this rank's program for which other ranks wait, by number.
    own_flag : ndarray of int64, shape (n_tasks,)
        Number of each task among those awaited; -1 if no other rank waits for it.
    is_gated : ndarray of bool, shape (n_tasks,)
        Whether the task must not run until all ranks of the node have completed the previous start.
    """

    indptr: Longs
    rank: Longs
    row: Longs
    flag: Longs
    awaited: Longs
    own_flag: Longs
    is_gated: Bools

    @property
    def waits(self) -> Bools:
        """Bools of the tasks that must check the progress of other ranks before they run."""
        return self.is_gated | (np.diff(self.indptr) > 0)


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """Tasks of one rank, sorted by priority, then by row.

    Parameters
    ----------
    row : ndarray of int64, shape (n_tasks,)
        Row of each task in the plan, for error messages.
    op, peer, tag, stage, duration_ns : ndarray, shape (n_tasks,)
        Columns of the plan.
    function : ndarray of int64, shape (n_tasks,)
        Address of the C function that a COMPUTE task calls, instead of keeping the core busy; 0 if
        there is none.
    reads, writes : Extents
        Extents that each task reads and writes.
    patterns : ndarray of int64, shape (n_patterns, 4)
        Patterns of the plan, to which the `pattern` of an extent refers.
    itemsize : int
        Bytes per element.
    n_before : ndarray of int64, shape (n_tasks,)
        Number of dependencies of each task on tasks of this rank.
    on_start, on_completion : Successors
        Tasks that wait for the start, and for the completion, of each task.
    sharing : Sharing
        Waits between this program and those of other ranks of the node.
    """

    row: Longs
    op: Ints
    peer: Ints
    tag: Ints
    stage: Ints
    duration_ns: Ints
    function: Longs
    reads: Extents
    writes: Extents
    patterns: Ints
    itemsize: int
    n_before: Longs
    on_start: Successors
    on_completion: Successors
    sharing: Sharing

    @property
    def n_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.row)

    @property
    def is_requested(self) -> Bools:
        """Bools of the tasks that have requests of MPI: messages and calls of collectives."""
        return np.asarray((self.op <= Op.RECV) | (self.op == Op.CALL))


def shares_memory(plan: Plan) -> bool:
    """Return whether ranks of a node share memory.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks. For the program of one rank, the result is whether this rank shares
        memory, or the plan has shared buffers.
    """
    touches = any((part.buffer == Buffer.SHARED).any() for part in (plan.reads, plan.writes))
    waits = len(plan.foreign) + len(plan.foreign.awaited) > 0
    return bool(touches or waits or plan.shared_sizes.any())


def rank_program(plan: Plan, rank: int) -> Program:
    """Return the program of one rank of a plan.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or the program of this rank. Its format must have been checked,
        because engines pass addresses from it to MPI, and read as many bytes of operands as the
        result has.
    rank : int

    Returns
    -------
    Program

    Raises
    ------
    UnsupportedPlanError
        If a task waits for a task of another rank, but ranks share no memory.
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
        function=np.zeros(n, dtype=np.int64),
        reads=reads,
        writes=writes,
        patterns=plan.patterns,
        itemsize=plan.itemsize,
        n_before=np.bincount(after, minlength=n).astype(np.int64),
        on_start=_successors(before[started], after[started], n),
        on_completion=_successors(before[~started], after[~started], n),
        sharing=_sharing(alone, own_row, writes),
    )


def _own_dependencies(plan: Plan, row: Longs) -> tuple[Longs, Longs, Ints]:
    """Return the dependencies between tasks of a program.

    Parameters
    ----------
    plan : Plan
    row : ndarray of int64, shape (n_tasks,)
        Row of each task of the program in `plan`.

    Returns
    -------
    after, before : ndarray of int64, shape (n_dependencies,)
        Task of the program, and the task for which it waits.
    kind : ndarray of int
        Kinds of the dependencies, as in the plan.

    Raises
    ------
    UnsupportedPlanError
        If a task waits for a task that is not in `row`.
    """
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


def _sharing(alone: Plan, row: Longs, writes: Extents) -> Sharing:
    """Return the waits of a program.

    Parameters
    ----------
    alone : Plan
        The plan, restricted to one rank if ranks share memory.
    row : ndarray of int64, shape (n_tasks,)
        Row of each task of the program in `alone`.
    writes : Extents
        Extents that the tasks of the program write.
    """
    foreign, n = alone.foreign, len(row)
    # Most plans share no memory. They may have many tasks of other ranks, so skip the search.
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


def _successors(before: Longs, after: Longs, n_tasks: int) -> Successors:
    order, indptr = csr.group_by(before, n_tasks)
    return Successors(indptr=indptr, task=after[order])


def own_computations(plan: Plan, program: Program, rank: int) -> Bools:
    """Return a mask of shape (n_tasks,) of background computations on the rank's own core.

    These tasks represent the computation of the application between start and wait.
    """
    in_background = program.stage == Stage.BACKGROUND
    on_own_core = plan.core[program.row] == plan.rank_core[rank]
    computes: Bools = (program.op == Op.COMPUTE) & in_background & on_own_core
    return computes


def why_not_apart(program: Program, computes: Bools) -> str | None:
    """Return the reason why the caller cannot compute while a thread runs background tasks.

    The caller cannot know which background tasks have ended. Its computations may therefore wait
    only for tasks of the START stage, and only tasks of the WAIT stage may wait for them.

    Parameters
    ----------
    program : Program
    computes : ndarray of bool, shape (n_tasks,)
        Computations of the caller, see `own_computations`.

    Returns
    -------
    str or None
        Reason; None if the caller can run its computations.
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


def left_to_caller(program: Program, is_threads: Bools) -> tuple[Program, int]:
    """Separate the background computations of the caller from a program.

    Parameters
    ----------
    program : Program
        Program of a rank with a progress thread.
    is_threads : ndarray of bool, shape (n_tasks,)
        Whether the thread runs each task.

    Returns
    -------
    program : Program
        The program, in which these computations take no time and belong to the WAIT stage.
    total_ns : int
        Sum of their durations in ns.
    """
    computes = (program.op == Op.COMPUTE) & (program.stage == Stage.BACKGROUND) & ~is_threads
    # They end without further delay when the thread has returned the start to the caller.
    stage = np.where(computes, np.int8(Stage.WAIT), program.stage)
    duration_ns = np.where(computes, 0, program.duration_ns)
    total_ns = int(program.duration_ns[computes].sum())
    return replace(program, stage=stage, duration_ns=duration_ns), total_ns
