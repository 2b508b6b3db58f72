"""Record the measured start and end of every task of a plan on all ranks, by a common clock."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic_ns

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.measure.run import Case, allocate_case
from collplan.measure.timing import WARM_UPS, Clocks, line_up
from collplan.planner.arrays import Floats, Longs
from collplan.planner.plan.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class TaskTimes:
    """Start and end of every task in the repetition whose makespan is the median.

    Parameters
    ----------
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        Times in ns by rank 0's clock, counted from the start of the first rank.
    makespans_s : ndarray of float64, shape (repetitions,)
        Time in s from the start of the first rank to the end of the last task, for every
        repetition.
    clock_error_s : float
        Largest error of the ranks' clocks in s; 0 if all ranks read the same clock.
    """

    start_ns: Floats
    end_ns: Floats
    makespans_s: Floats
    clock_error_s: float


def record_plan(
    plan: Plan,
    comm: MPI.Intracomm,
    *,
    repetitions: int = 20,
    timeout_s: float | None = None,
) -> TaskTimes | None:
    """Run a plan repeatedly, record every task, and return the repetition of median makespan.

    Collective over `comm`. Recording reads the clock twice per task.

    Parameters
    ----------
    plan : Plan
        Plan compiled from a spec: the whole plan on rank 0, and the whole plan or the
        rank's program on other ranks.
    comm : MPI.Intracomm
        Communicator with as many ranks as the plan.
    repetitions : int
        Number of repetitions, at least 1. If it is even, the lower median is taken.
    timeout_s : float, optional
        Time limit in s for other ranks and for waits without progress, as for `bind`.

    Returns
    -------
    TaskTimes or None
        Times of all tasks on rank 0; None on other ranks.

    Raises
    ------
    BindError
        If the plan has no spec or does not fit `comm`.
    """
    case = allocate_case(plan, comm)
    recorder = Recorder()
    with bind(
        plan, comm, case.sendbuf, case.recvbuf, recorder=recorder, timeout_s=timeout_s
    ) as planned:
        runs, begins, ends, errors = _record(case, planned, recorder, repetitions)
    comm.Allreduce(MPI.IN_PLACE, begins, MPI.MIN)
    for latest in (ends, errors):
        comm.Allreduce(MPI.IN_PLACE, latest, MPI.MAX)
    makespans = ends - begins
    chosen = int(np.argsort(makespans, kind="stable")[(repetitions - 1) // 2])
    times = _gather(plan, comm, (runs[chosen] - begins[chosen]).astype(np.float64))
    if times is None:
        return None
    return TaskTimes(times[0], times[1], makespans / 1e9, int(errors[chosen]) / 1e9)


def _record(
    case: Case, planned: BoundPlan, recorder: Recorder, repetitions: int
) -> tuple[list[Longs], Longs, Longs, Longs]:
    """Run all repetitions; return the tasks' times, begins, ends and clock errors of each.

    All times are in ns, by rank 0's clock.
    """
    clocks, crowded = Clocks(case.comm), ranks_per_core(case.comm) > 1
    runs: list[Longs] = []
    begins, ends, errors = np.zeros((3, repetitions), dtype=np.int64)
    for repetition in range(-WARM_UPS, repetitions):
        case.refill()
        offset = clocks.offset()
        line_up(case.comm, crowded)
        begin = monotonic_ns()
        planned()
        if repetition < 0:
            continue
        runs.append(recorder.times() - offset.ahead_ns)
        begins[repetition] = begin - offset.ahead_ns
        ends[repetition] = runs[-1][1].max(initial=begins[repetition])
        errors[repetition] = offset.error_ns
    return runs, begins, ends, errors


def _gather(plan: Plan, comm: MPI.Intracomm, own: Floats) -> Floats | None:
    """Return start and end of all tasks on rank 0, shape (2, n_tasks); None on other ranks."""
    parts = comm.gather(own)
    if parts is None:
        return None
    times = np.empty((2, plan.n_tasks))
    for rank, part in enumerate(parts):
        times[:, plan.rank == rank] = part
    return times
