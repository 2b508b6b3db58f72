"""Runs and their reports: right and wrong results, both oracles, JSON, too little memory."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.measure import run as measure
from collplan.measure.run import RunReport, run_plan
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import PlanSpec
from mpi_plans import refuses


def plan_of(comm: MPI.Intracomm, **collective: object) -> Plan:
    machine = {"ranks_per_node": comm.size}
    return compile_plan(PlanSpec.model_validate({"machine": machine, "collective": collective}))


def check_shape(report: RunReport, comm: MPI.Intracomm, repetitions: int) -> None:
    assert report.ranks == comm.size
    assert report.repetitions == repetitions
    assert 0 < report.min_s <= report.quartiles_s[0] <= report.median_s <= report.quartiles_s[1]
    assert 0 < report.native_min_s <= report.native_median_s
    assert report.ratio == report.median_s / report.native_median_s
    assert json.loads(json.dumps(asdict(report)))["median_s"] == report.median_s
    everywhere = comm.allgather(report)
    assert all(other == report for other in everywhere)


@pytest.mark.ranks(1, 3)
def test_right_results(comm: MPI.Intracomm) -> None:
    for in_place in (False, True):
        report = run_plan(
            plan_of(comm, kind="allreduce", count=1000, in_place=in_place), comm, repetitions=7
        )
        check_shape(report, comm, 7)
        assert report.correct is True
        assert (report.checked_against, report.first_wrong) == ("numpy", None)
        assert report.bytes == 8000
    report = run_plan(plan_of(comm, kind="barrier"), comm, repetitions=2)
    assert report.correct is True


@pytest.mark.ranks(1, 3)
def test_unchecked(comm: MPI.Intracomm) -> None:
    report = run_plan(plan_of(comm, kind="alltoall", count=10), comm, repetitions=1, check=False)
    assert (report.correct, report.checked_against) == (None, None)


@pytest.mark.ranks(1, 3)
def test_native_oracle(comm: MPI.Intracomm) -> None:
    """With too many bytes for numpy on one rank, the native results are compared with."""
    limit, measure.ORACLE_BYTES = measure.ORACLE_BYTES, 0
    for kind in ("allgather", "gather", "scatter", "reduce_scatter_block", "exscan", "alltoall"):
        for in_place in (False, True):
            plan = plan_of(comm, kind=kind, count=9, datatype="int32", in_place=in_place)
            report = run_plan(plan, comm, repetitions=1)
            assert report.correct is True, (kind, in_place, report.first_wrong)
            assert report.checked_against == "native"
    measure.ORACLE_BYTES = limit


@pytest.mark.ranks(3)
def test_wrong_result(comm: MPI.Intracomm) -> None:
    """A plan that broadcasts from rank 0 is not a broadcast from the last rank."""
    p = comm.size
    asked = plan_of(comm, kind="bcast", count=3, datatype="int32", root=p - 1)
    broken = plan_of(comm, kind="bcast", count=3, datatype="int32", root=0).replace(spec=asked.spec)
    for oracle_bytes in (measure.ORACLE_BYTES, 0):
        limit, measure.ORACLE_BYTES = measure.ORACLE_BYTES, oracle_bytes
        report = run_plan(broken, comm, repetitions=1)
        measure.ORACLE_BYTES = limit
        assert report.correct is False
        assert report.first_wrong is not None
        assert (report.first_wrong.rank, report.first_wrong.element) == (0, 0)
        assert report.first_wrong.n_wrong == 3 * p
        assert str(report.first_wrong).startswith("rank 0, element 0: got ")
        assert json.loads(json.dumps(asdict(report)))["first_wrong"]["rank"] == 0


@pytest.mark.ranks(1, 3)
def test_no_collective(comm: MPI.Intracomm) -> None:
    plan = plan_of(comm, kind="barrier").replace(spec=None)
    refuses(BindError, "names no collective", lambda: run_plan(plan, comm))


@pytest.mark.ranks(1, 3)
def test_beyond_memory(comm: MPI.Intracomm) -> None:
    """All ranks raise if only one lacks memory, instead of waiting for it."""
    p = comm.size
    large = plan_of(comm, kind="allgather", count=2**40, datatype="int32")
    refuses(BindError, "bytes do not fit into memory; use a", lambda: run_plan(large, comm))
    plan = plan_of(comm, kind="gather", count=10, datatype="int32", root=p - 1)
    sizes = plan.buffer_sizes.copy()
    sizes[p - 1, Buffer.RECV] = 2**44
    words = f"rank {p - 1}: the plan's buffers of "
    refuses(BindError, words, lambda: run_plan(plan.replace(buffer_sizes=sizes), comm))
    sizes = plan.buffer_sizes.copy()
    sizes[p - 1, Buffer.SCRATCH] = 2**44
    words = f"scratch of {2**46} bytes does not fit into memory"
    refuses(BindError, words, lambda: run_plan(plan.replace(buffer_sizes=sizes), comm))
