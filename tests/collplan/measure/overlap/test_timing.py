"""States of cores in runs that overlap: what a core does when, and which run stands for all."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.cost.traces.states import CoreState
from collplan.measure.overlap.overlapped import Overlapped
from collplan.measure.overlap.runs import Pinned, Stamps, Timed
from collplan.measure.overlap.sweep import BLOCKING, OverlapMethod
from collplan.measure.overlap.timing import _own_intervals, _shares, _states, _thread_intervals
from collplan.measure.timing import WARM_UPS, nothing
from collplan.planner.plan.plan import Stage

COMPUTES, COMMUNICATES = CoreState.COMPUTATION, CoreState.COMMUNICATION


def timed(progress: str, *stages: Stage, method: OverlapMethod | None = None) -> Timed:
    idle = Overlapped(nothing, nothing, nothing)
    made = Timed(method or OverlapMethod("plan", levels=1), idle, progress)
    made.stages = [(stage, 0) for stage in stages]
    return made


def test_a_wait_is_idle_if_a_thread_makes_progress_and_the_rank_has_no_tasks_left() -> None:
    start, compute, wait = (7, COMMUNICATES, 1, 3), (7, COMPUTES, 3, 5), (7, COMMUNICATES, 5, 6)
    for each, intervals in (
        (timed("thread", Stage.BACKGROUND), {start, compute}),
        (timed("thread", Stage.BACKGROUND, Stage.WAIT), {start, compute, wait}),
        (timed("caller", Stage.BACKGROUND), {start, compute, wait}),
        (timed("caller", Stage.WAIT, method=BLOCKING), {compute, wait}),
    ):
        assert set(_own_intervals(each, Stamps(1, 3, 5, 6, 0), 7)) == intervals


@pytest.mark.ranks(1)
def test_states_are_those_of_the_run_of_median_time(comm: MPI.Intracomm) -> None:
    lasting = [50.0, 10.0, 40.0, 20.0, 30.0]
    each = timed("caller", Stage.WAIT)
    each.stamps = [Stamps(0, 1, 2, 3, 0)] * WARM_UPS
    each.stamps += [Stamps(100, 101, 102, 100 + int(time), 0) for time in lasting]
    times = np.array([[1.0] * 5, [1.0] * 5, lasting])
    (states,) = _states(comm, Pinned([4], [4], 0), [each], times)
    assert states.label == "measured, 1 ranks, S=1"
    assert states.cores == ["core 0 (processor 4)"]
    assert states.slices(0) == [
        (COMMUNICATES, 0, 1), (COMPUTES, 1, 2), (COMMUNICATES, 2, 30),
    ]  # fmt: skip


def test_a_thread_is_busy_on_each_of_its_cores_for_an_equal_part() -> None:
    """Threads of several ranks share a core, which is busy for all of them until the last end."""
    each = timed("thread")
    each.stages = [(Stage.BACKGROUND, core) for core in (5, 6, 7)] + [(Stage.WAIT, 8)]
    assert _shares(each, Stamps(0, 10, 20, 90, 61), 7) == [(5, 10, 90, 30), (6, 10, 90, 30)]
    assert _shares(timed("caller", Stage.BACKGROUND), Stamps(0, 10, 20, 90, 61), 7) == []
    shares = [(5, 10, 90, 30), (6, 10, 90, 30), (5, 40, 95, 20), (4, 50, 60, 99)]
    assert _thread_intervals(shares) == [
        (4, COMMUNICATES, 50, 60), (5, COMMUNICATES, 10, 60), (6, COMMUNICATES, 10, 40),
    ]  # fmt: skip
