"""Time collectives alone, computation alone, and both together, on one node.

References
----------
.. [1] Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and
   dedicated cores for overlapping MPI nonblocking collectives on manycore processor, 2019,
   section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.cost.traces.states import CoreState, CoreStates
from collplan.executors.mpi.together import first_alone
from collplan.measure.overlap.overlapped import Computation
from collplan.measure.overlap.runs import CollectivePair, Pinned, Stamps, Timed
from collplan.measure.overlap.sweep import BLOCKING, OverlapMethod, OverlapSweep, overlap_row
from collplan.measure.run import common_progress
from collplan.measure.statistics import summarize
from collplan.measure.timing import WARM_UPS, Call, nothing, time_in_turns
from collplan.planner.plan.plan import Stage

Interval = tuple[int, CoreState, int, int]
"""Core, its state, and the begin and end of the state in ns."""
Share = tuple[int, int, int, int]
"""Core, begin and end of the interval in which a thread may run there, and its busy time, in ns."""


def measure_blocking(
    comm: MPI.Intracomm, sweep: OverlapSweep, repetitions: int, advance: Call = nothing
) -> float:
    """Return the median time of the blocking collective on the ranks of `comm`, in s.

    Collective over `comm`.
    """
    with CollectivePair(comm, sweep, Pinned.at(comm, sweep)) as collectives:
        return _blocking_s(comm, collectives, repetitions, advance)


def _blocking_s(
    comm: MPI.Intracomm, collectives: CollectivePair, repetitions: int, advance: Call
) -> float:
    timed = collectives.ready(BLOCKING)
    (times,) = time_in_turns(comm, [timed.run.alone], repetitions, advance=advance)
    return float(np.median(times))


def measure_overlap(
    comm: MPI.Intracomm,
    sweep: OverlapSweep,
    methods: Sequence[OverlapMethod],
    *,
    on_all_cores_s: float | None,
    repetitions: int,
    advance: Call = nothing,
) -> dict[str, Any]:
    """Time every method alone and together with computation, in turns.

    Collective over `comm`. Every rank's thread stays pinned to the processor of its
    application core after the call.

    Parameters
    ----------
    comm : Intracomm
        Communicator of ranks on one node; fewer ranks than the node has cores.
    sweep : OverlapSweep
        Description of the collective.
    methods : sequence of OverlapMethod
        Distinct methods to time.
    on_all_cores_s : float or None
        C(N_proc), the time of the computation on all cores in s; None to use the time of the
        blocking collective on these ranks, scaled to all cores by the model.
    repetitions : int
        Number of repetitions, at least 2.
    advance : callable
        Function called after each repetition.

    Returns
    -------
    dict
        ``rows``, one per method; ``states``, the `CoreStates` of each method's median run, on
        rank 0 only; ``wrong``, a text for each method with wrong results; ``correct``, whether
        there are none; ``computation_s``, C(N_proc); ``processors``, number of usable processors.
    """
    pinned = Pinned.at(comm, sweep)
    with CollectivePair(comm, sweep, pinned) as collectives:
        if on_all_cores_s is None:
            ratio = sweep.blocking_ratio(comm.size)
            on_all_cores_s = ratio * _blocking_s(comm, collectives, repetitions, advance)
        seconds = sweep.computation_s(comm.size, on_all_cores_s)
        compute = first_alone(comm, lambda: Computation(seconds))
        timed = [collectives.ready(method, compute) for method in methods]
        for each in timed:
            each.both()
            each.stamps.clear()
        wrong = collectives.find_wrong()
        calls: list[Call] = [compute, *chain(*((each.run.alone, each.both) for each in timed))]
        times = time_in_turns(comm, calls, repetitions, advance=advance)
        wrong = collectives.find_wrong() | wrong
    return {
        "rows": _rows(comm, timed, times),
        "states": _states(comm, pinned, timed, times),
        "wrong": [f"{name}: {element}" for name, element in wrong.items()],
        "correct": not wrong,
        "computation_s": on_all_cores_s,
        "processors": len(pinned.processors),
    }


def _rows(
    comm: MPI.Intracomm, timed: Sequence[Timed], times: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    computation = summarize(times[0])
    rows = []
    for i, each in enumerate(timed):
        progress, why_caller = common_progress(comm, each.progress, each.why_caller)
        alone, both = summarize(times[1 + 2 * i]), summarize(times[2 + 2 * i])
        row = overlap_row(
            comm.size, each.method, alone.median_s, computation.median_s, both.median_s
        )
        row |= {"progress": progress, "why_caller": why_caller}
        row["total_ci95_s"] = (both.low_s, both.high_s)
        rows.append(row)
    return rows


def _states(
    comm: MPI.Intracomm, pinned: Pinned, timed: Sequence[Timed], times: npt.NDArray[np.float64]
) -> list[CoreStates]:
    """Return the states of the cores in the median run of each method; empty except on rank 0."""
    names = [f"core {core} (processor {at})" for core, at in enumerate(pinned.cores)]
    found = []
    for i, each in enumerate(timed):
        both = times[2 + 2 * i]
        median = int(np.argsort(both, kind="stable")[(len(both) - 1) // 2])
        stamps = each.stamps[WARM_UPS + median]
        parts: list[tuple[list[Interval], list[Share]]] | None = comm.gather(
            (_own_intervals(each, stamps, pinned.core), _shares(each, stamps, pinned.core))
        )
        if parts is None:
            continue
        intervals = list(chain(*(own for own, _ in parts)))
        intervals += _thread_intervals(list(chain(*(shares for _, shares in parts))))
        core, state, begin, end = np.array(intervals, dtype=np.int64).T
        first = begin.min()
        label = f"measured, {comm.size} ranks, {each.method.name}"
        found.append(CoreStates(label, names, core, state, begin - first, end - first))
    return found


def _own_intervals(each: Timed, stamps: Stamps, core: int) -> list[Interval]:
    """Return the intervals of one rank's states on its own core, as seen by the calling thread.

    If a thread makes progress and the rank has no tasks in the wait, the wait is idle.
    """
    found = [(core, CoreState.COMPUTATION, stamps.started, stamps.computed)]
    if not each.method.blocking:
        found.append((core, CoreState.COMMUNICATION, stamps.began, stamps.started))
    waits = any(stage == Stage.WAIT for stage, _ in each.stages)
    if each.progress != "thread" or waits:
        found.append((core, CoreState.COMMUNICATION, stamps.computed, stamps.ended))
    return found


def _shares(each: Timed, stamps: Stamps, core: int) -> list[Share]:
    """Return the busy time of a rank's thread, divided evenly among its communication cores."""
    if each.progress != "thread":
        return []
    cores = [other for stage, other in each.stages if stage == Stage.BACKGROUND and other != core]
    busy_ns = stamps.thread_ns // max(1, len(cores))
    return [(other, stamps.started, stamps.ended, busy_ns) for other in cores]


def _thread_intervals(shares: Sequence[Share]) -> list[Interval]:
    """Return one busy interval per communication core: from the first begin, for all busy times."""
    found = []
    for core in sorted({core for core, *_ in shares}):
        begins, ends, busy = zip(*(rest for other, *rest in shares if other == core), strict=True)
        end = min(max(ends), min(begins) + sum(busy))
        found.append((core, CoreState.COMMUNICATION, min(begins), end))
    return found
