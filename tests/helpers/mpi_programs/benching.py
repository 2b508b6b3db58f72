"""Benchmarks on ranks: who is on which lane, what is called when, and what is made of times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError, LaunchError
from collplan.measure import guideline
from collplan.measure import lanes as patterns
from collplan.measure import timing as bench_timing
from collplan.measure.guideline import Guideline, measure_guideline, standard_candidates
from collplan.measure.lanes import (
    Lanes,
    lane_pattern,
    multi_collective,
    split_lanes,
)
from collplan.measure.timing import WARM_UPS, line_up, time_in_turns
from collplan.planner.plan.plan import Plan
from collplan.programs import compiling_together
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError
from mpi_plans import refuses
from oracle import REGULAR

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
HALVES = [2 * r // p for r in range(p)]


def spec_of(
    decomposition: str = "flat", algorithms: str = "auto", **collective: object
) -> PlanSpec:
    elements = {"datatype": "int32", "count": 40, **collective}
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "ranks_per_node": p // 2} if p % 2 == 0 else {"nodes": p},
            "collective": collective if collective["kind"] == "barrier" else elements,
            "decomposition": decomposition,
            "algorithms": algorithms,
        }
    )


def everywhere_equal(value: object) -> bool:
    return all(other == value for other in comm.allgather(value))


def lanes_take_a_rank_of_each_node() -> None:
    """Nodes are in the order of their first ranks, whatever they are called."""
    for nodes in (HALVES, [7 - node for node in HALVES], [r % 2 for r in range(p)]):
        lanes = split_lanes(comm, nodes)
        first_seen = list(dict.fromkeys(nodes))
        assert (lanes.n_nodes, lanes.n_idle) == (2, p % 2)
        assert lanes.ranks_per_node == p // 2
        own = [r for r in range(p) if nodes[r] == nodes[rank]]
        assert lanes.local == own.index(rank)
        if lanes.local < p // 2:
            assert lanes.comm.rank == first_seen.index(nodes[rank])
            assert set(lanes.comm.allgather(lanes.local)) == {lanes.local}
        else:
            assert lanes.comm == MPI.COMM_NULL
        lanes.free()


def uneven_nodes_leave_ranks_idle() -> None:
    lanes = split_lanes(comm, [0] + [1] * (p - 1))
    assert (lanes.n_nodes, lanes.ranks_per_node, lanes.n_idle) == (2, 1, p - 2)
    rows = lane_pattern(comm, lanes, [64], repetitions=2, inner=2)
    assert [(row.bytes, row.lanes) for row in rows] == [(64, 1)]
    rows = multi_collective(comm, lanes, "bcast", [64], repetitions=2)
    assert [(row.bytes, row.lanes) for row in rows] == [(64, 1)]
    lanes.free()


def steps_are_powers_of_two_and_all() -> None:
    for n, expected in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])):
        assert Lanes(2, n, 0, 0, comm).steps == expected


def lanes_need_nodes() -> None:
    # mpiexec starts all ranks on this machine.
    words = f"one node has all ranks ({p}), lanes join two or more"
    refuses(LaunchError, words, lambda: split_lanes(comm))
    words = f"the machine has {p + 1} ranks, the communicator {p}"
    refuses(LaunchError, words, lambda: split_lanes(comm, [*HALVES, 1]))


def sendrecvs_go_around_the_ring_of_nodes() -> None:
    """Of 11 bytes the first of k lanes carries the rest, too."""
    nodes = list(range(p))
    lanes = split_lanes(comm, nodes)
    sent: list[tuple[int, int, int]] = []

    class Recorder:
        rank, size = lanes.comm.rank, lanes.comm.size

        def Sendrecv(self, buffer: list[object], dest: int, recvbuf: object, source: int) -> None:
            assert isinstance(buffer[0], np.ndarray)
            sent.append((dest, source, len(buffer[0])))

    for local, k, share in ((0, 1, 11), (0, 2, 6), (1, 2, 5), (2, 3, 3), (0, 3, 5), (3, 2, None)):
        sent.clear()
        recorded = Lanes(p, 4, 0, local, Recorder())  # type: ignore[arg-type]
        patterns._exchange(recorded, 11, k, inner=3)()
        around = ((rank + 1) % p, (rank - 1) % p)
        assert sent == ([] if share is None else [(*around, share)] * 3), (local, k, sent)
    lanes.free()


def every_collective_runs_on_lanes() -> None:
    lanes = split_lanes(comm, HALVES)
    for kind in REGULAR:
        if kind == "barrier":
            continue
        rows = multi_collective(comm, lanes, kind, [0, 4096], repetitions=2)
        assert [(row.bytes, row.lanes) for row in rows] == [
            (size, k) for size in (0, 4096) for k in lanes.steps
        ]
        assert all(row.summary.n == 2 and row.summary.min_s > 0 for row in rows)
        assert everywhere_equal(rows)
    words = "alltoall over 2 nodes divides them into 2 blocks; give 8 bytes or more"
    sizes = [4096, 4]
    refuses(
        CollplanError,
        words,
        lambda: multi_collective(comm, lanes, "alltoall", sizes, repetitions=2),
    )
    lanes.free()


def with_clock(body: Callable[[Callable[[float], None]], None]) -> None:
    """Run `body` with a clock that stands but for what `body` lets pass."""
    real, now = bench_timing.perf_counter, [0.0]

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    bench_timing.perf_counter = lambda: now[0]
    body(pass_time)
    bench_timing.perf_counter = real


def calls_take_turns_and_the_slowest_rank_counts() -> None:
    order: list[str] = []

    def body(pass_time: Callable[[float], None]) -> None:
        def call(which: int) -> Callable[[], None]:
            def run() -> None:
                order.append("abc"[which])
                pass_time((which + 1) * 10 + (rank if which else p - rank))

            return run

        prepared: list[int] = []
        advanced: list[int] = []

        def prepare() -> None:
            pass_time(1000)
            prepared.append(len(order))

        times = time_in_turns(
            comm,
            [call(0), call(1), call(2)],
            5,
            prepare=prepare,
            advance=lambda: advanced.append(len(order)),
            from_first=False,
        )
        assert times.tolist() == [[10.0 + p] * 5, [20.0 + p - 1] * 5, [30.0 + p - 1] * 5]
        assert prepared == list(range(3 * (WARM_UPS + 5)))
        assert advanced == [3 * (i + 1) for i in range(WARM_UPS + 5)]

    with_clock(body)
    assert "".join(order) == ("abcbcacab" * 3)[: 3 * (WARM_UPS + 5)]


def time_may_run_from_the_first_ranks_begin() -> None:
    """Rank r begins r s late and takes 10 s: from the first to the last end it is p - 1 + 10."""

    def body(pass_time: Callable[[float], None]) -> None:
        now = [0.0]

        def come() -> None:
            # The others have moved on by as much as the slowest takes.
            now[0] += 100
            pass_time(now[0] - bench_timing.perf_counter() + rank)

        for from_first, seconds in ((True, 9.0 + p), (False, 10.0)):
            times = time_in_turns(
                comm, [lambda: pass_time(10.0)], 3, prepare=come, from_first=from_first
            )
            assert times.tolist() == [[seconds] * 3]

    with_clock(body)


def line_up_waits_for_all() -> None:
    """A rank that leaves sees in shared memory that all ranks have come."""
    window = MPI.Win.Allocate_shared(8 if rank == 0 else 0, comm=comm)
    memory = np.frombuffer(window.Shared_query(0)[0], np.uint8)
    if rank == 0:
        memory[:] = 0
    comm.Barrier()
    for crowded in (False, True):
        for last in range(p):
            if rank == last:
                sleep(0.005)  # so that the others come first and might leave
            memory[rank] += 1
            line_up(comm, crowded)
            assert (memory[:p] == memory[rank]).all()
            comm.Barrier()
    window.Free()


def guideline_of(
    spec: PlanSpec, candidates: Mapping[str, PlanSpec], counts: Sequence[int] = (40,)
) -> Guideline:
    found = measure_guideline(comm, spec, candidates, counts, repetitions=3)
    assert everywhere_equal(found)
    return found


def every_candidate_is_right() -> None:
    """Of every other collective: an odd number of ranks has those that an even one leaves out."""
    for kind in dict.fromkeys(["reduce", *REGULAR[p % 2 :: 2]]):
        spec = spec_of(kind=kind)
        candidates = {"flat": spec} if kind == "barrier" else standard_candidates(spec)
        counts = [0, 1, 40] if kind == "reduce" else [spec.collective.count]
        found = guideline_of(spec, candidates, counts)
        n_sizes = len(counts)
        assert found.refused == [], (kind, found.refused)
        assert [row.candidate for row in found.rows] == ["native", *candidates] * n_sizes
        assert found.is_correct, (kind, [str(row.wrong) for row in found.rows])
        assert found.checked_against == ["numpy"] * n_sizes
        for row in found.rows:
            assert row.summary.n == 3
            assert json.loads(json.dumps(row.to_json()))["median_s"] == row.summary.median_s
            assert (row.factor == 1) or row.candidate != "native"
        assert {row.bytes for row in found.rows} == {4 * count for count in counts}


def spec_with(spec: PlanSpec, decomposition: str) -> PlanSpec:
    return PlanSpec.model_validate({**spec.model_dump(), "decomposition": decomposition})


def standard_candidates_are_named_and_forget_the_specs_own_choice() -> None:
    spec = spec_of("hierarchical", kind="allreduce", count=7)
    found = standard_candidates(spec)
    shapes = ["hierarchical", "full_lane"]
    assert list(found) == [*shapes, "best", *(f"{name} native" for name in shapes)]
    assert [s.decomposition.name for s in found.values()] == [*shapes, "auto", *shapes]
    assert {s.collective for s in found.values()} == {spec.collective}
    named = spec_of(kind="allgather", algorithms="ring")
    algorithms = [s.algorithms.name for s in standard_candidates(named).values()]
    assert algorithms == ["auto"] * 3 + ["native"] * 2


def refusals_of_one_rank_are_everybodys() -> None:
    real = compiling_together.compile_plan
    spec = spec_of(kind="bcast")

    def compile_or_refuse(asked: PlanSpec, *, rank: int, **options: Any) -> Plan:
        if asked.decomposition.name == "hierarchical" and rank == p - 1:
            raise BindError("not on the last rank; use another")
        plan = real(asked, rank=rank, **options)
        if asked.decomposition.name == "full_lane" and rank == p - 1:
            return plan.replace(spec=spec_of(kind="bcast", count=41))
        return plan

    compiling_together.compile_plan = compile_or_refuse
    candidates = {d: spec_with(spec, d) for d in ("hierarchical", "full_lane", "flat")}
    found = guideline_of(spec, candidates)
    compiling_together.compile_plan = real
    assert [row.candidate for row in found.rows] == ["native", "flat"]
    assert found.is_correct
    compiled, bound = found.refused
    assert (compiled.bytes, compiled.candidate) == (160, "hierarchical")
    assert (
        compiled.reason
        == f"rank {p - 1} cannot compile the plan: not on the last rank; use another"
    )
    assert bound.candidate == "full_lane"
    assert "compile the same spec on all ranks" in bound.reason


def impossible_algorithms_are_refused() -> None:
    spec = spec_of(kind="allgather")
    asked = spec_of(kind="allgather", algorithms="recursive_doubling")
    found = guideline_of(spec, {"doubling": asked})
    if p & (p - 1):
        assert [row.candidate for row in found.rows] == ["native"]
        assert f"{p} ranks" in found.refused[0].reason
    else:
        assert found.is_correct


def wrong_results_are_found_and_are_no_violation() -> None:
    """A plan that broadcasts from rank 0 is not a broadcast from the last rank."""
    real = compiling_together.compile_plan
    spec = spec_of(kind="bcast", root=p - 1)

    def broken(asked: PlanSpec, **options: Any) -> Plan:
        if asked.decomposition.name == "hierarchical":
            return real(spec_of(kind="bcast", root=0), **options).replace(spec=asked)
        return real(asked, **options)

    compiling_together.compile_plan = broken
    candidates = {d: spec_with(spec, d) for d in ("hierarchical", "full_lane")}
    found = with_times(lambda: guideline_of(spec, candidates), [3.0, 1.0, 1.0])
    compiling_together.compile_plan = real
    assert not found.is_correct
    rows = {row.candidate: row for row in found.rows}
    assert rows["full_lane"].wrong is None
    assert rows["full_lane"].faster
    assert not rows["full_lane"].violation
    wrong = rows["hierarchical"]
    assert not wrong.faster
    assert wrong.wrong is not None
    assert (wrong.wrong.rank, wrong.wrong.n_wrong) == (0, 40 * p)
    assert str(wrong.to_json()["wrong"]).startswith("rank 0, element 0: got ")


def with_times(body: Callable[[], Guideline], seconds: list[float]) -> Guideline:
    """Run `body` with made-up times: 3 for each call, a percent apart."""
    real = guideline.time_in_turns
    spread = np.array([0.99, 1.0, 1.01] * 2)
    guideline.time_in_turns = lambda *_, **__: np.array(seconds)[:, None] * spread
    found = body()
    guideline.time_in_turns = real
    return found


def the_checked_call_can_be_watched() -> None:
    seen: list[str] = []

    def watch(name: str, call: Callable[[], object]) -> None:
        seen.append(name)
        if name != "skipped":
            call()

    spec = spec_of(kind="allreduce")
    candidates = dict.fromkeys(("run", "skipped"), spec)
    found = measure_guideline(comm, spec, candidates, [40], repetitions=2, watch=watch)
    assert seen == ["native", "run", "skipped"]
    assert [row.wrong is None for row in found.rows] == [True, True, False]


def violations_are_beyond_noise() -> None:
    spec = spec_of(kind="allreduce")
    candidates = {str(i): spec_with(spec, "flat") for i in range(3)}
    mock_up = spec.replace(decomposition="guideline", algorithms="native")
    seconds = [2.0, 1.0, 1.99, 2.5, 1.0]
    found = with_times(lambda: guideline_of(spec, {**candidates, "mine": mock_up}), seconds)
    assert [row.faster for row in found.rows] == [False, True, False, False, True]
    assert [row.violation for row in found.rows] == [False] * 4 + [True]
    assert [round(row.factor, 3) for row in found.rows] == [1.0, 2.0, 1.005, 0.8, 2.0]


steps_are_powers_of_two_and_all()
lanes_take_a_rank_of_each_node()
uneven_nodes_leave_ranks_idle()
lanes_need_nodes()
sendrecvs_go_around_the_ring_of_nodes()
every_collective_runs_on_lanes()
calls_take_turns_and_the_slowest_rank_counts()
time_may_run_from_the_first_ranks_begin()
line_up_waits_for_all()
every_candidate_is_right()
standard_candidates_are_named_and_forget_the_specs_own_choice()
refusals_of_one_rank_are_everybodys()
impossible_algorithms_are_refused()
wrong_results_are_found_and_are_no_violation()
the_checked_call_can_be_watched()
violations_are_beyond_noise()
comm.Barrier()
if rank == 0:
    print("passed")
