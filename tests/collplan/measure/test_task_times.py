"""Recorded starts: order of the tasks, whose row is whose, clocks that differ."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.cost import simulate
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.executors.mpi.errors import BindError
from collplan.measure import task_times
from collplan.measure.task_times import TaskTimes, record_plan
from collplan.measure.timing import Clocks
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.reports.measured import prediction_report
from collplan.specs import PlanSpec, parse_spec
from mpi_plans import PlanWriter, refuses

SKEW_NS = 10**15
"""More than any start takes, whatever the machine is busy with."""


def spec_of(comm: MPI.Intracomm) -> PlanSpec:
    """Return a pipelined allreduce on two nodes."""
    return parse_spec(
        {
            "machine": {"ranks_per_node": comm.size // 2, "nodes": 2, "rank_order": "cyclic"},
            "collective": {"kind": "allreduce", "count": 3000, "datatype": "int32"},
            "decomposition": "full_lane",
            "passes": [{"name": "segment", "max_bytes": 1024}, "prioritize", "limit_requests"],
        }
    )


def check_times(plan: Plan, times: TaskTimes) -> None:
    """Fail where a task runs backwards, or before what it depends on."""
    start, end = times.start_ns, times.end_ns
    assert start.min() >= 0
    assert (start <= end).all()
    assert end.max() / 1e9 in times.makespans_s
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before = plan.deps.task
    earliest = np.where(plan.deps.kind & ON_START, start[before], end[before])
    assert len(before) > plan.n_tasks / 2
    assert (start[after] >= earliest).all()
    slack = 2e9 * times.clock_error_s
    for send in np.flatnonzero(plan.op == Op.SEND).tolist():
        wanted = (Op.RECV, plan.peer[send], plan.rank[send], plan.tag[send])
        is_wanted = np.ones(plan.n_tasks, dtype=bool)
        for column, value in zip((plan.op, plan.rank, plan.peer, plan.tag), wanted, strict=True):
            is_wanted &= column == value
        (recv,) = np.flatnonzero(is_wanted)
        assert end[recv] >= start[send] - slack, (send, recv)


@pytest.mark.ranks(2, 4)
def test_every_task_of_all_ranks(comm: MPI.Intracomm) -> None:
    """Rank 0 has the whole plan, the others their programs, as the command line has it."""
    rank = comm.rank
    plan = compile_plan(spec_of(comm), rank=rank or None)
    for repetitions in (1, 4):
        times = record_plan(plan, comm, repetitions=repetitions)
        assert (times is None) == (rank > 0)
        if times is None:
            continue
        assert len(times.makespans_s) == repetitions
        middle = np.sort(times.makespans_s)[(repetitions - 1) // 2]
        assert times.end_ns.max() / 1e9 == middle
        assert times.clock_error_s == 0
        check_times(plan, times)
        report = prediction_report(simulate(plan), times)
        assert [phase["name"] for phase in report["phases"]] == list(map(str, plan.phases))
        assert report["measured_s"] == middle


@pytest.mark.ranks(2, 4)
def test_results_stay_right(comm: MPI.Intracomm) -> None:
    rank, p = comm.rank, comm.size
    plan = compile_plan(spec_of(comm), rank=rank)
    send, recv = np.full(3000, rank, dtype=np.int32), np.zeros(3000, dtype=np.int32)
    recorder = Recorder()
    with bind(plan, comm, send, recv, recorder=recorder) as bound:
        ended = 0
        for i in range(3):
            send[:] = rank + i
            bound()
            assert (recv == sum(range(p)) + i * p).all()
            start, end = recorder.times()
            # Each start overwrites every time of the one before.
            assert start.min() > ended
            ended = end.max()


@pytest.mark.ranks(1, 2, 4)
def test_messages_without_bytes_and_tasks_with_nothing_to_do(comm: MPI.Intracomm) -> None:
    p = comm.size
    writer = PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        came = writer.recv(r, (r - 1) % p)
        left = writer.send(r, (r + 1) % p, after=[(came, ON_START)])
        copied = writer.add(Op.COPY, r, after=[came, left])
        writer.add(Op.COPY, r, [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)], after=[copied])
    plan = writer.plan()
    recorder = Recorder()
    one, other = np.ones(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    with bind(plan, comm, one, other, recorder=recorder) as bound:
        bound()
    start, end = recorder.times()
    assert (start > 0).all()
    assert (start <= end).all()
    assert start[0] <= start[1]
    assert start[3] >= end[2] >= start[2] >= end[:2].max()


@pytest.mark.ranks(2, 4)
def test_clocks_that_differ(comm: MPI.Intracomm) -> None:
    """Pairs of ranks read the same clock; another pair's shows another time."""
    rank, p = comm.rank, comm.size
    assert Clocks(comm).offset() == (0, 0)
    ahead = rank // 2 * SKEW_NS

    def now() -> int:
        return time.monotonic_ns() + ahead

    skewed = partial(Clocks, name=f"clock {rank // 2}", now=now)
    offset = skewed(comm).offset()
    assert abs(offset.ahead_ns - ahead) <= offset.error_ns
    assert (offset.error_ns == 0) == (rank < 2)

    class Skewed(Recorder):
        def times(self) -> np.ndarray:
            return super().times() + ahead

    plan = compile_plan(spec_of(comm))
    patched = [
        (task_times, "Recorder", Skewed),
        (task_times, "monotonic_ns", now),
        (task_times, "Clocks", skewed),
    ]
    real = [getattr(module, name) for module, name, _ in patched]
    for module, name, replacement in patched:
        setattr(module, name, replacement)
    times = record_plan(plan, comm, repetitions=3)
    for (module, name, _), original in zip(patched, real, strict=True):
        setattr(module, name, original)
    if times is not None:
        assert (times.clock_error_s > 0) == (p > 2)
        assert times.end_ns.max() < SKEW_NS / 2
        check_times(plan, times)


@pytest.mark.ranks(1)
def test_nothing_to_record(comm: MPI.Intracomm) -> None:
    spec = {"machine": {"ranks_per_node": 1}, "collective": {"kind": "barrier"}}
    plan = compile_plan(parse_spec(spec))
    assert plan.n_tasks == 0
    times = record_plan(plan, comm, repetitions=2)
    assert times is not None
    assert times.makespans_s.tolist() == [0, 0]
    report = prediction_report(simulate(plan), times)
    assert (report["phases"], report["prediction_error"], report["measured_s"]) == ([], None, 0)
    refuses(
        BindError,
        "names no collective",
        lambda: record_plan(plan.replace(spec=None), comm),
    )
