"""Runs and their reports: right and wrong results, both oracles, JSON, too little memory."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.measure import run as measure
from collplan.measure.native import NativeCollective
from collplan.measure.run import RunReport, run_plan
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import Gatherv, PlanSpec
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


VECTORS: list[dict[str, object]] = [
    {"kind": "gatherv", "counts": [3, 0, 2], "displs": [4, 0, 1], "root": 2},
    {"kind": "scatterv", "counts": [3, 0, 2], "displs": [4, 0, 3]},
    {"kind": "allgatherv", "counts": [3, 0, 2], "displs": [4, 0, 1]},
    {"kind": "reduce_scatter", "counts": [3, 0, 2]},
    {
        "kind": "alltoallv",
        "counts": [[0, 2, 1], [2, 3, 0], [1, 0, 4]],
        "recv_displs": [[0, 1, 5], [0, 6, 0], [9, 0, 1]],
    },
]


@pytest.mark.ranks(3)
def test_counts_that_differ(comm: MPI.Intracomm) -> None:
    """Both oracles find results right that lie apart, in place and not."""
    for asked in VECTORS:
        for in_place, oracle_bytes in ((False, 2**28), (True, 2**28), (True, 0), (False, 0)):
            limit, measure.ORACLE_BYTES = measure.ORACLE_BYTES, oracle_bytes
            report = run_plan(plan_of(comm, **asked, in_place=in_place), comm, repetitions=2)
            measure.ORACLE_BYTES = limit
            assert report.correct is True, (asked, in_place, report.first_wrong)
            assert report.checked_against == ("numpy" if oracle_bytes else "native")


@pytest.mark.ranks(3)
def test_a_gap_that_is_touched(comm: MPI.Intracomm) -> None:
    """A plan that writes between blocks is found wrong, and the report says where."""
    asked = plan_of(comm, kind="allgatherv", counts=[2, 2, 2], displs=[0, 3, 6], datatype="int32")
    assert asked.spec is not None
    dense = plan_of(comm, kind="allgatherv", counts=[2, 2, 2], datatype="int32")
    broken = dense.replace(spec=asked.spec)
    for oracle_bytes in (measure.ORACLE_BYTES, 0):
        limit, measure.ORACLE_BYTES = measure.ORACLE_BYTES, oracle_bytes
        report = run_plan(broken, comm, repetitions=1)
        measure.ORACLE_BYTES = limit
        assert report.first_wrong is not None
        assert (report.first_wrong.rank, report.first_wrong.element) == (0, 2)
        assert report.first_wrong.expected == "no change"


@pytest.mark.ranks(3)
def test_counts_that_leave_a_buffer(comm: MPI.Intracomm) -> None:
    plan = plan_of(comm, kind="allgatherv", counts=[3, 0, 2], displs=[4, 0, 1], datatype="int32")
    send, recv = np.zeros(3, np.int32), np.zeros(6, np.int32)
    words = "recvbuf has 6 elements, the plan needs 7 on this rank; "
    refuses(BindError, words, lambda: bind(plan, comm, send, recv))


@pytest.mark.ranks(2)
def test_displacements_beyond_an_int(comm: MPI.Intracomm) -> None:
    """An MPI without large counts says so, instead of ending with an error code."""
    collective = Gatherv(counts=[1, 1], displs=[0, 2**31], datatype="uint8")
    buffers = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
    if MPI.Get_version() >= (4, 0):
        with NativeCollective(collective, comm, *buffers):
            return
    words = "collective.counts: 2147483648 elements are more than the 2147483647 of a native gather"
    refuses(BindError, words, lambda: NativeCollective(collective, comm, *buffers))


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
