"""Runs and their reports: right and wrong results, both oracles, JSON, too little memory."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from queue import SimpleQueue
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.measure import run as measure
from collplan.measure import timing
from collplan.measure.native import NativeCollective
from collplan.measure.run import PADDING, Case, RunReport, WrongElement, run_plan
from collplan.measure.timing import CallObserver, Clocks, clock_name, nothing, time_in_turns
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


@pytest.mark.ranks(1, 2)
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
    words = "the plan's buffers of "
    refuses(BindError, words, lambda: run_plan(plan.replace(buffer_sizes=sizes), comm))
    sizes = plan.buffer_sizes.copy()
    sizes[p - 1, Buffer.SCRATCH] = 2**44
    words = f"scratch of {2**46} bytes does not fit into memory"
    refuses(BindError, words, lambda: run_plan(plan.replace(buffer_sizes=sizes), comm))


class OfTwo:
    """Rank 0 of two ranks, which do not send anything."""

    rank = 0

    def __init__(self, other: str) -> None:
        self._other = other

    def allgather(self, own: str) -> list[str]:
        return [own, self._other]


def test_clocks_of_one_name_need_no_comparison() -> None:
    comm: Any
    for comm, name in ((OfTwo("a"), "a"), (OfTwo(clock_name()), None)):
        assert Clocks(comm, name).offset() == (0, 0)
    comm = OfTwo("b")
    with pytest.raises(AttributeError, match="Send"):
        Clocks(comm, "a").offset()


class InThread:
    """A rank in a thread, with the calls that clocks make."""

    def __init__(self, rank: int, mail: dict[tuple[int, int], SimpleQueue[Any]]) -> None:
        self.rank, self._mail = rank, mail
        self._others = [source for source, dest in mail if dest == rank]

    def _send(self, value: object, dest: int) -> None:
        self._mail[self.rank, dest].put(value)

    def _recv(self, source: int) -> Any:
        return self._mail[source, self.rank].get(timeout=60)

    def allgather(self, own: object) -> list[object]:
        for other in self._others:
            self._send(own, other)
        found = {other: self._recv(other) for other in self._others} | {self.rank: own}
        return [found[rank] for rank in sorted(found)]

    def bcast(self, value: object) -> object:
        return self.allgather(value)[0]

    def Send(self, buffer: np.ndarray, dest: int) -> None:
        self._send(buffer.copy(), dest)

    def Recv(self, buffer: np.ndarray, source: int) -> None:
        buffer[:] = self._recv(source)


def test_leads_of_clocks_are_found_within_their_errors() -> None:
    """Ranks 1 and 2 read a clock that is a second ahead of that of ranks 0 and 3."""
    ahead_ns = [0, 10**9, 10**9, 0]
    mail = {(i, j): SimpleQueue() for i in range(4) for j in range(4) if i != j}

    def lead_of(rank: int) -> Any:
        comm: Any = InThread(rank, mail)
        return Clocks(comm, f"{ahead_ns[rank]}", lambda: monotonic_ns() + ahead_ns[rank]).offset()

    with ThreadPoolExecutor(4) as threads:
        leads = list(threads.map(lead_of, range(4)))
    assert leads[0] == leads[3] == (0, 0)
    assert leads[1] == leads[2]
    assert abs(leads[1].ahead_ns - 10**9) <= leads[1].error_ns < 10**9


class Noting(CallObserver):
    """Notes what it observes."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int | None]] = []

    def announce(self, which: int) -> None:
        self.notes.append(("announce", which))

    def begin(self, which: int) -> None:
        self.notes.append(("begin", which))

    def end(self) -> None:
        self.notes.append(("end", None))


def test_calls_take_turns_to_be_the_first_and_are_watched() -> None:
    watch, called = Noting(), []
    calls = [lambda: called.append(0), lambda: called.append(1)]
    times = time_in_turns(MPI.COMM_SELF, calls, 3, watch=watch, warm_ups=1, first=1)
    order = [1, 0, 0, 1, 1, 0, 0, 1]
    assert called == order
    expected = [[("announce", which), ("begin", which), ("end", None)] for which in order]
    assert watch.notes == [note for notes in expected for note in notes]
    assert times.shape == (2, 3)
    assert (times >= 0).all()
    assert time_in_turns(MPI.COMM_SELF, [nothing], 2).shape == (1, 2)


def test_wrong_elements_and_a_padding_that_is_touched_are_found() -> None:
    """Floating-point results may differ by four units of rounding per rank."""
    plan = plan_of(MPI.COMM_SELF, kind="allreduce", count=4)
    assert plan.spec is not None
    case = Case(plan, plan.spec.collective, MPI.COMM_SELF)
    truth, unit = np.ones(4), np.finfo(np.float64).eps
    case.recvbuf[:4] = [1, 1 + 4 * unit, 1, 1 - 3 * unit]
    assert case.own_wrong(truth).tolist() == []
    case.recvbuf[2] = 1 + 5 * unit
    case.recvbuf.view(np.uint8)[-1] ^= 1
    case.recvbuf.view(np.uint8)[4 * 8] ^= 1
    touched = [4, 4 + PADDING - 1]
    assert case.own_wrong(truth).tolist() == [2, *touched]
    assert case.own_wrong(None).tolist() == touched


def test_the_error_of_a_clock_is_half_of_the_shortest_round_trip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other clock is ahead by 70 ns, and is read in the middle of the round trip."""
    monkeypatch.setattr(timing, "EXCHANGES", 3)
    reads = iter((10, 30, 40, 50, 60, 90))
    other = iter((20 + 70, 45 + 70, 75 + 70))

    def receive(shown: npt.NDArray[np.int64], source: int) -> None:
        assert source == 4
        shown[0] = next(other)

    ends: Any = SimpleNamespace(
        rank=0, allgather=lambda one: [one], Send=lambda *_, **__: None, Recv=receive
    )
    assert Clocks(ends, "own", lambda: next(reads))._ask(4) == (70, 5)


def test_figures_of_a_run_are_quantiles_over_its_repetitions() -> None:
    """The ratio is that of the medians, and its quartiles are those of the ratios."""
    times = np.array([[5.0, 1.0, 3.0, 2.0, 4.0], [10.0, 4.0, 6.0, 20.0, 16.0]])
    case: Any = SimpleNamespace(
        comm=SimpleNamespace(size=3), collective=SimpleNamespace(count=5, itemsize=8)
    )
    report = measure._report(case, times, None, "numpy", ("thread", None))
    assert (report.ranks, report.repetitions, report.bytes) == (3, 5, 40)
    assert (report.min_s, report.quartiles_s, report.median_s) == (1, (2, 4), 3)
    assert (report.native_min_s, report.native_quartiles_s, report.native_median_s) == (
        4, (6, 16), 10,
    )  # fmt: skip
    assert report.ratio == 0.3
    assert report.ratio_quartiles == (0.25, 0.5)
    assert (report.correct, report.checked_against, report.progress) == (True, "numpy", "thread")
    unchecked = measure._report(case, times, None, None, ("caller", "there is no core"))
    assert (unchecked.correct, unchecked.why_caller) == (None, "there is no core")
    wrong = WrongElement(1, 4, "5", "6", 2)
    assert measure._report(case, times, wrong, "numpy", ("caller", None)).correct is False


def test_one_thread_and_the_first_reason_speak_for_all_ranks() -> None:
    def of(*everyone: tuple[str, str | None]) -> tuple[str, str | None]:
        comm: Any = SimpleNamespace(allgather=lambda _: list(everyone))
        return measure.common_progress(comm, "caller", None)

    assert of(("caller", None), ("thread", None)) == ("thread", None)
    assert of(("caller", "first"), ("caller", "second")) == ("caller", "first")
    assert of(("caller", None)) == ("caller", None)
