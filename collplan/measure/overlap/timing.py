"""Time collectives alone, computation alone, and both at once, on one node.

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

from collplan.executors.cost.traces.states import CoreStates, State
from collplan.executors.mpi.together import first_alone
from collplan.measure.overlap.computation import Computation
from collplan.measure.overlap.runs import Collectives, Pinned, Stamps, Timed
from collplan.measure.overlap.sweep import BLOCKING, OverlapMethod, Sweep, overlap_row
from collplan.measure.run import common_progress
from collplan.measure.statistics import summarize
from collplan.measure.timing import WARM_UPS, Call, nothing, time_in_turns
from collplan.planner.plan.plan import Stage

Interval = tuple[int, State, int, int]
"""A core, what it did, from and until when, in ns."""
Share = tuple[int, int, int, int]
"""A core, from and until when a thread may have run there, and how long it did, in ns."""


def measure_blocking(
    comm: MPI.Intracomm, sweep: Sweep, repetitions: int, advance: Call = nothing
) -> float:
    """Return what the blocking collective takes on the ranks there are: the median, in s.

    Collective over `comm`.
    """
    with Collectives(comm, sweep, Pinned.at(comm, sweep)) as collectives:
        return _blocking_s(comm, collectives, repetitions, advance)


def _blocking_s(
    comm: MPI.Intracomm, collectives: Collectives, repetitions: int, advance: Call
) -> float:
    timed = collectives.ready(BLOCKING)
    (times,) = time_in_turns(comm, [timed.alone], repetitions, advance=advance)
    return float(np.median(times))


def measure_overlap(
    comm: MPI.Intracomm,
    sweep: Sweep,
    methods: Sequence[OverlapMethod],
    *,
    on_all_cores_s: float | None,
    repetitions: int,
    advance: Call = nothing,
) -> dict[str, Any]:
    """Time every method alone and beside computation, in turns.

    Collective over `comm`. Every rank's thread is kept on the processor of its
    application core from now on.

    Parameters
    ----------
    comm : Intracomm
        Ranks of one node, less than it has cores.
    sweep : Sweep
        What to run.
    methods : sequence of OverlapMethod
        How, each another way.
    on_all_cores_s : float or None
        C(N_proc), the computation's time on all cores; None to take the blocking
        collective's on these ranks, times what the model says.
    repetitions : int
        At least 2.
    advance : callable
        Called after each repetition.

    Returns
    -------
    dict
        ``rows``, one per method; ``states``, the `CoreStates` of each method's median run, on
        rank 0 alone; ``wrong``, results that are not right, in words; ``correct``, whether there
        are none; ``computation_s``, C(N_proc); ``processors``, how many the ranks may use.
    """
    pinned = Pinned.at(comm, sweep)
    with Collectives(comm, sweep, pinned) as collectives:
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
        calls: list[Call] = [compute, *chain(*((each.alone, each.both) for each in timed))]
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
    """Return what cores did in the run of each method whose time is the median."""
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
    """Return what one rank did on its own core, as far as the caller can tell.

    A wait that has nothing of its own to run is idle.
    """
    found = [(core, State.COMPUTATION, stamps.started, stamps.computed)]
    if not each.method.blocking:
        found.append((core, State.COMMUNICATION, stamps.began, stamps.started))
    waits = any(stage == Stage.WAIT for stage, _ in each.stages)
    if each.progress != "thread" or waits:
        found.append((core, State.COMMUNICATION, stamps.computed, stamps.ended))
    return found


def _shares(each: Timed, stamps: Stamps, core: int) -> list[Share]:
    """Return what a rank's progress thread did on its communication cores, divided evenly."""
    if each.progress != "thread":
        return []
    cores = [other for stage, other in each.stages if stage == Stage.BACKGROUND and other != core]
    busy_ns = stamps.thread_ns // max(1, len(cores))
    return [(other, stamps.started, stamps.ended, busy_ns) for other in cores]


def _thread_intervals(shares: Sequence[Share]) -> list[Interval]:
    """Return when communication cores were busy: from the first start on, for all shares' time."""
    found = []
    for core in sorted({core for core, *_ in shares}):
        begins, ends, busy = zip(*(rest for other, *rest in shares if other == core), strict=True)
        end = min(max(ends), min(begins) + sum(busy))
        found.append((core, State.COMMUNICATION, min(begins), end))
    return found
