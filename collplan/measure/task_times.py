"""Record when every task of a plan really ran, on all ranks, by one clock."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.measure.run import allocate_case
from collplan.measure.timing import WARM_UPS, Clocks, line_up

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class TaskTimes:
    """When every task ran in the start whose makespan is the median.

    Parameters
    ----------
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        From the moment the first rank started, by rank 0's clock.
    makespans_s : ndarray of float64, shape (repetitions,)
        From the first rank's start to the end of the last task, of every start.
    clock_error_s : float
        How far the ranks' clocks may be wrong; 0 where all read the same.
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
    seed: int = 0,
    timeout_s: float | None = None,
) -> TaskTimes | None:
    """Start a plan again and again, recording every task; keep the median start.

    Collective over `comm`. Recording reads the clock twice per task.

    Parameters
    ----------
    plan : Plan
        Compiled from a spec: on rank 0 the whole plan, on others that or their
        program.
    comm : MPI.Intracomm
        As many ranks as the plan has.
    repetitions : int
        At least 1. Of an even number the lower median is taken.
    seed : int
        Of the inputs.
    timeout_s : float, optional
        How long the plan may stand still, as for `bind`.

    Returns
    -------
    TaskTimes or None
        On rank 0; None elsewhere.

    Raises
    ------
    BindError
        If the plan has no spec or does not fit `comm`.
    """
    if plan.spec is None:
        raise BindError("the plan was imported and names no collective; compile it from a spec")
    case = allocate_case(plan, plan.spec.collective, comm, seed)
    clocks, crowded = Clocks(comm), ranks_per_core(comm) > 1
    recorder = Recorder()
    runs: list[Longs] = []
    # When each start began and ended here, and how far our clock may be wrong.
    begins, ends, errors = np.zeros((3, repetitions), dtype=np.int64)
    bound = bind(plan, comm, case.sendbuf, case.recvbuf, recorder=recorder, timeout_s=timeout_s)
    with bound as planned:
        for repetition in range(-WARM_UPS, repetitions):
            case.refill()
            offset = clocks.offset()
            line_up(comm, crowded)
            begin = monotonic_ns()
            planned()
            if repetition < 0:
                continue
            runs.append(recorder.times() - offset.ahead_ns)
            begins[repetition] = begin - offset.ahead_ns
            ends[repetition] = runs[-1][1].max(initial=begins[repetition])
            errors[repetition] = offset.error_ns
    comm.Allreduce(MPI.IN_PLACE, begins, MPI.MIN)
    for latest in (ends, errors):
        comm.Allreduce(MPI.IN_PLACE, latest, MPI.MAX)
    makespans = ends - begins
    chosen = int(np.argsort(makespans, kind="stable")[(repetitions - 1) // 2])
    parts = comm.gather((runs[chosen] - begins[chosen]).astype(np.float64))
    if parts is None:
        return None
    times = np.empty((2, plan.n_tasks))
    for rank, part in enumerate(parts):
        times[:, plan.rank == rank] = part
    return TaskTimes(times[0], times[1], makespans / 1e9, int(errors[chosen]) / 1e9)
