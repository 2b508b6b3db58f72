"""Breakdown of the critical path's time: exact by hand, complete on any schedule."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.cost import Timeline, simulate
from collplan.executors.cost.critical_path import KINDS, breakdown, legs
from collplan.executors.cost.tables import ENDED, Resource
from collplan.planner import compile_plan
from collplan.planner.errors import DeadlockError
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Plan
from collplan.specs import Network, parse_spec
from cost_schedules import PARAMETERS, TWO_TO_TWO, network, on_machine, random_schedule
from tiers import examples

# 101 bytes: overhead 10 at each end, latency 100, 100 bytes more at 1 ns.
BETWEEN = "L=100,o=10,g=20,G=1,O=0,S=1000"
ONE = "num_ranks 2\nrank 0 {\ns: send 101b to 1\n}\nrank 1 {\nr: recv 101b from 0\n}"


def parts(plan: Plan, parameters: Network) -> dict[str, float]:
    """Return what is not 0 of the breakdown."""
    found = breakdown(legs(simulate(plan, parameters), parameters))
    assert tuple(found) == KINDS
    return {kind: ns for kind, ns in found.items() if ns}


def test_one_message() -> None:
    expected = {"latency": 100, "overhead": 20, "bandwidth": 100}
    assert parts(parse_goal(ONE), network(BETWEEN)) == expected


def test_a_core_that_touches_bytes_longer_than_the_wire_is_overhead() -> None:
    slow = network(BETWEEN.replace("O=0", "O=3"))
    assert parts(parse_goal(ONE), slow) == {"latency": 100, "overhead": 20 + 300}


def test_binomial_bcast_is_three_messages_deep() -> None:
    spec = parse_spec(
        {
            "machine": {"nodes": 8},
            "collective": {"kind": "bcast", "count": 101, "datatype": "uint8"},
            "algorithms": "binomial",
        }
    )
    expected = {"latency": 300, "overhead": 60, "bandwidth": 300}
    assert parts(compile_plan(spec), network(BETWEEN)) == expected


def test_ring_allgather_is_its_rounds_and_a_copy() -> None:
    """Each of 3 rounds takes 10 + 100 + 10 + 100; rank 1's own block is copied in between.

    All 4 ranks send first and copy their block for 101 ns, done at 111, when the first
    message has been waiting for 1 ns: so the path begins with the send and the copy.
    """
    spec = parse_spec(
        {
            "machine": {"nodes": 4},
            "collective": {"kind": "allgather", "count": 101, "datatype": "uint8"},
            "algorithms": "ring",
        }
    )
    parameters = network(BETWEEN, copy_ns_per_byte=1.0)
    assert parts(compile_plan(spec), parameters) == {
        "overhead": 3 * 20,
        "latency": 2 * 100,
        "bandwidth": 3 * 100,
        "copy": 101,
    }


def test_work_goes_to_its_kind() -> None:
    text = "num_ranks 1\nrank 0 {\na: calc 7\nb: calc 5\nb requires a\n}"
    assert parts(parse_goal(text), network(BETWEEN)) == {"compute": 12}


def test_what_waits_for_a_lane_names_it_and_how_long() -> None:
    """Rank 1's send is ready at 0 and gets the lane at 120; the message finds all free."""
    plan = on_machine(TWO_TO_TWO, [0, 0, 1, 1], [0, 1, 0, 1])
    parameters = network(BETWEEN)
    first, second, last = legs(simulate(plan, parameters), parameters)
    assert (first.row, first.begin_ns, first.end_ns) == (0, 0, 120)
    assert first.parts == (("bandwidth", 120),)
    assert second.resource == Resource("lane", 0, 0, "out")
    assert second.queued_ns == 120
    assert (last.resource, last.queued_ns) == (None, 0)
    assert last.parts == (("overhead", 10), ("bandwidth", 100))


def test_a_busy_core_is_named() -> None:
    """The receiver computes until 500; the message is there at 110 and waits 390."""
    text = """
    num_ranks 2
    rank 0 {
    s: send 101b to 1
    }
    rank 1 {
    c: calc 500
    r: recv 101b from 0
    }
    """
    parameters = network(BETWEEN)
    timeline = simulate(parse_goal(text), parameters)
    assert timeline.arrival_ns[2] == 500
    path = legs(timeline, parameters)
    assert path[-1].resource == Resource("core", 1, 0)
    assert path[-1].queued_ns == 390
    assert breakdown(path)["compute"] == 500


def test_causes_and_arrivals_are_recorded() -> None:
    """The message of rank 0 is there at 110, before its receive is posted at 720."""
    text = """
    num_ranks 3
    rank 0 {
    s: send 101b to 2
    }
    rank 1 {
    c: calc 500
    t: send 101b to 2
    t requires c
    }
    rank 2 {
    q: recv 101b from 1
    r: recv 101b from 0
    r requires q
    }
    """
    timeline = simulate(parse_goal(text), network(BETWEEN))
    s, c, t, q, r = range(5)
    assert timeline.start_ns[[s, t, r]].tolist() == [0, 500, 720]
    assert timeline.arrival_ns[[q, r]].tolist() == [610, 110]
    assert np.isnan(timeline.arrival_ns[[s, c, t]]).all()
    assert timeline.cause[[s, t, r]].tolist() == [-1, c, q]
    assert timeline.reason[[t, r]].tolist() == [ENDED, ENDED]
    assert timeline.arrival_cause[[s, t]].tolist() == [s, t]


def test_time_that_no_formula_explains_is_waiting() -> None:
    """The same times, read with parameters that explain 20 ns less of the flight."""
    plan = parse_goal(ONE)
    timeline = simulate(plan, network(BETWEEN))
    found = breakdown(legs(timeline, network(BETWEEN.replace("L=100", "L=80"))))
    assert found["waiting"] == 20
    assert sum(found.values()) == timeline.makespan_ns == 220


def test_an_empty_plan_has_no_path() -> None:
    plan = parse_goal("num_ranks 1\nrank 0 { }")
    assert legs(simulate(plan, network()), network()) == ()
    assert not any(breakdown(()).values())


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Timeline]:
    n_ranks = draw(st.integers(1, 8))
    text = random_schedule(draw(st.integers(0, 10**6)), n_ranks, draw(st.integers(0, 120)))
    n_nodes = draw(st.integers(1, n_ranks))
    nodes = [rank % n_nodes for rank in range(n_ranks)]
    cores = [rank // n_nodes % draw(st.integers(1, 4)) for rank in range(n_ranks)]
    plan = on_machine(text, nodes, cores, draw(st.integers(1, 3)))
    parameters = network(draw(st.sampled_from(PARAMETERS)))
    try:
        return parameters, simulate(plan, parameters)
    except DeadlockError:
        parameters = parameters.replace(eager_limit_bytes=10**9)
        return parameters, simulate(plan, parameters)


@settings(max_examples=examples(60), deadline=None)
@given(cases())
def test_legs_cover_the_makespan_and_nothing_else(case: tuple[Network, Timeline]) -> None:
    """Parameters are whole, so all of it is exact; and plain LogGPS leaves nothing unexplained."""
    parameters, timeline = case
    path = legs(timeline, parameters)
    found = breakdown(path)
    assert min(found.values()) >= 0
    assert sum(found.values()) == timeline.makespan_ns
    assert found["waiting"] == 0
    if path:
        assert path[0].begin_ns == 0
        assert path[-1].end_ns == timeline.makespan_ns
    assert all(before.end_ns == leg.begin_ns for before, leg in pairwise(path))
    for before, leg in pairwise(path):
        assert 0 <= leg.queued_ns <= before.end_ns - before.begin_ns
        assert sum(ns for _, ns in leg.parts) == leg.end_ns - leg.begin_ns
        assert leg.waited_for != "resource" or leg.resource is not None


@settings(max_examples=examples(25), deadline=None)
@given(cases(), st.floats(0, 3))
def test_parts_add_up_whatever_the_parameters_explain(
    case: tuple[Network, Timeline], factor: float
) -> None:
    """Read with other parameters than it was simulated with, a path is still covered."""
    parameters, timeline = case
    link = parameters.network.replace(L_ns=parameters.network.L_ns * factor, G_ns_per_byte=factor)
    others = parameters.replace(network=link, node=link, numa=link, core=link)
    found = breakdown(legs(timeline, others))
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(timeline.makespan_ns, rel=1e-12)


def test_path_of_a_plan_with_several_links_is_explained() -> None:
    for kind, algorithm in (("allreduce", "ring"), ("alltoall", "pairwise"), ("scan", "chain")):
        spec = parse_spec(
            {
                "machine": {"nodes": 2, "ranks_per_node": 4, "numa_domains": 2, "lanes": 2},
                "collective": {"kind": kind, "count": 4096, "datatype": "int32"},
                "algorithms": algorithm,
            }
        )
        plan = compile_plan(spec)
        own = spec.machine.network
        timeline = simulate(plan, own)
        found = breakdown(legs(timeline, own))
        assert sum(found.values()) == pytest.approx(timeline.makespan_ns, rel=1e-12)
        assert found["waiting"] == 0
        assert np.isfinite(list(found.values())).all()


@pytest.mark.quick
@pytest.mark.parametrize(
    "changes",
    [
        {"handshake": True, "eager_limit_bytes": 1000},
        {"strided_ns_per_byte": 0.25},
        {"cache_bytes": 1000, "uncached_ns_per_byte": 0.25},
        {"network": {"L_ns": 1000, "o_ns": 300, "g_ns": 100, "G_ns_per_byte": 1, "offload": True}},
    ],
)
@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "allgather"])
def test_all_that_a_task_alone_costs_is_explained(kind: str, changes: dict[str, Any]) -> None:
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2, "network": changes}
    collective = {"kind": kind, "count": 4096, "datatype": "int32"}
    plan = compile_plan(parse_spec({"machine": machine, "collective": collective}))
    assert plan.spec is not None
    timeline = simulate(plan)
    found = breakdown(legs(timeline, plan.spec.machine.network))
    assert sum(found.values()) == pytest.approx(timeline.makespan_ns, rel=1e-12)
    assert found["waiting"] == pytest.approx(0, abs=1e-6)


def test_a_slow_memory_is_waiting() -> None:
    """A copy of 16,384 bytes alone takes 1,639 ns; the memory moves them in 32,768."""
    machine = {"nodes": 2, "network": {"memory_ns_per_byte": 2}}
    collective = {"kind": "allgather", "count": 4096, "datatype": "int32"}
    plan = compile_plan(parse_spec({"machine": machine, "collective": collective}))
    assert plan.spec is not None
    found = parts(plan, plan.spec.machine.network)
    assert found["copy"] == 1639
    assert found["waiting"] == 32768 - 1639


def test_a_shared_processor_is_named() -> None:
    """Two computations on two nodes, one processor: the second begins when the first ends."""
    plan = parse_goal("num_ranks 2\nrank 0 {\na: calc 7\n}\nrank 1 {\nb: calc 5\n}")
    parameters = network(BETWEEN, processors=1)
    first, second = legs(simulate(plan, parameters), parameters)
    assert second.resource == Resource("processor", 0)
    assert (first.end_ns, second.begin_ns, second.end_ns) == (7, 7, 12)
    assert second.queued_ns == 7
