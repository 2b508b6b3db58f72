"""Properties of every schedule on every machine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.cost import Timeline, cost_report, simulate, simulate_each
from collplan.executors.cost.critical_path import breakdown, critical_rows, legs
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.specs import Link, Network, Nic
from collplan.specs.machines.network import LINKS
from cost_networks import PLAIN, cases, networks, plans, simulated
from cost_places import Places, places_of
from cost_schedules import LATE_RECEIVE, network
from oracle import make_spec
from tiers import examples

Case = tuple[Plan, Network, Timeline]
Floats = npt.NDArray[np.float64]


def of_links(network: Network, places: Places, field: str) -> Floats:
    table = [float(getattr(getattr(network, name), field)) for name in LINKS]
    return np.array(table)[places.link]


def bytes_after_the_first(plan: Plan) -> Floats:
    return np.maximum(plan.elements * float(plan.itemsize) - 1, 0.0)


def soonest(plan: Plan, network: Network, partner: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return when tasks start and end at the soonest: all resources for each alone.

    Written from the rules as they are documented, without the simulator's tables.
    """
    places, op = places_of(plan, partner), plan.op
    n_bytes, more = plan.elements * float(plan.itemsize), bytes_after_the_first(plan)
    sends, recvs = np.flatnonzero(op == Op.SEND), np.flatnonzero(op == Op.RECV)
    L, o, G, O = (  # noqa: E741
        of_links(network, places, name)
        for name in ("L_ns", "o_ns", "G_ns_per_byte", "O_ns_per_byte")
    )
    if network.burst_bytes:
        # With an adapter that writes memory, a burst is in at once.
        G = np.where(of_links(network, places, "offload") > 0, 0.0, G)
    is_long = (op == Op.SEND) & (n_bytes > network.eager_limit_bytes)
    takes = plan.duration_ns.astype(np.float64)
    for kind, cost in (
        (Op.COPY, network.copy_ns_per_byte),
        (Op.REDUCE, network.reduce_ns_per_byte),
    ):
        takes = np.where(op == kind, np.rint(n_bytes * cost), takes)
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before, on_start = plan.deps.task, plan.deps.kind & ON_START
    ready = np.zeros(plan.n_tasks)
    while True:
        start = ready.copy()
        if network.handshake:
            asking = np.flatnonzero(is_long)
            flight = (o + L)[asking]
            start[asking] = np.maximum(ready[asking] + flight, ready[partner[asking]]) + flight
        arrival = start + o + L
        end = np.where(op == Op.SEND, start + o + more * O, start + takes)
        if not network.handshake:
            matched = np.maximum(arrival, ready[partner])
            end = np.where(is_long, matched, end)
        taken = arrival[partner[recvs]] + (o + more * np.maximum(G, O))[recvs]
        end[recvs] = np.maximum(taken, start[recvs])
        later = np.zeros(plan.n_tasks)
        np.maximum.at(later, after, np.where(on_start, start[before], end[before]))
        if np.array_equal(later, ready):
            assert len(sends) == len(recvs)
            return start, end
        ready = later


@settings(max_examples=examples(60), deadline=None)
@given(cases)
def test_nothing_ends_before_the_longest_chain_to_it(case: Case) -> None:
    plan, parameters, timeline = case
    start, end = soonest(plan, parameters, timeline.partner)
    assert (timeline.start_ns >= start).all()
    assert (timeline.end_ns >= end).all()


@settings(max_examples=examples(60), deadline=None)
@given(cases)
def test_makespan_covers_every_resource(case: Case) -> None:
    plan, parameters, timeline = case
    makespan = timeline.makespan_ns
    assert makespan >= timeline.core_busy_ns.max(initial=0)
    if parameters.processors is not None:
        assert makespan * parameters.processors >= timeline.core_busy_ns.sum()
    # A lane's last gap may reach beyond the last task, and bursts at either end are ahead of time:
    # nobody waits.
    largest = max(getattr(parameters, name).g_ns for name in LINKS)
    slack = largest + 2 * parameters.burst_bytes * parameters.network.G_ns_per_byte
    assert makespan + slack >= timeline.lane_busy_ns.max(initial=0)
    is_moved = (plan.op == Op.COPY) | (plan.op == Op.REDUCE)
    is_moved |= (plan.op == Op.RECV) & (plan.rank_node[plan.rank] == plan.rank_node[plan.peer])
    moved = plan.elements * plan.itemsize * is_moved
    by_node = np.bincount(plan.rank_node[plan.rank], moved, plan.n_nodes)
    assert makespan >= by_node.max() * parameters.memory_ns_per_byte


@settings(max_examples=examples(60), deadline=None)
@given(cases)
def test_lanes_are_busy_for_their_bytes(case: Case) -> None:
    """For g and (s - 1)·G of every message, at both ends, in turns or not; and for fetching."""
    plan, parameters, timeline = case
    places = places_of(plan, timeline.partner)
    takes = of_links(parameters, places, "g_ns")
    takes += bytes_after_the_first(plan) * of_links(parameters, places, "G_ns_per_byte")
    for side, op in enumerate((Op.SEND, Op.RECV)):
        rows = np.flatnonzero((plan.op == op) & (places.lane >= 0))
        expected = np.zeros((plan.n_nodes, places.n_lanes))
        np.add.at(expected, (places.node[rows], places.lane[rows]), takes[rows])
        busy = timeline.lane_busy_ns[:, :, side]
        if parameters.nic is None or op == Op.RECV:
            assert np.array_equal(busy, expected)
        else:
            # Drawn so that connecting anew takes as long as fetching.
            assert timeline.pcie_reads is not None
            fetched = timeline.pcie_reads * (parameters.nic.miss_ns / parameters.nic.reads_at_once)
            assert np.array_equal(busy, expected + fetched)
    assert (timeline.pcie_reads is None) == (parameters.nic is None)


@settings(max_examples=examples(80), deadline=None)
@given(cases)
def test_critical_path_is_as_long_as_the_makespan(case: Case) -> None:
    plan, parameters, timeline = case
    path = legs(timeline, parameters)
    assert bool(path) == bool(plan.n_tasks)
    if path:
        assert path[0].begin_ns == 0
        assert path[-1].end_ns == timeline.makespan_ns
        assert timeline.end_ns[path[-1].row] == timeline.makespan_ns
    for before, leg in pairwise(path):
        assert before.end_ns == leg.begin_ns <= leg.end_ns
        assert 0 <= leg.queued_ns <= before.end_ns - before.begin_ns
        assert leg.waited_for != "nothing"
    for leg in path:
        assert sum(ns for _, ns in leg.parts) == leg.end_ns - leg.begin_ns
    report = cost_report(plan, timeline, parameters)
    assert min(report["breakdown"].values()) >= 0
    assert sum(report["breakdown"].values()) == timeline.makespan_ns
    taken = sum(step["takes_s"] for step in report["critical_path"])
    assert taken == pytest.approx(timeline.makespan_s, rel=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(plans, networks)
def test_only_what_is_shared_beyond_cores_and_lanes_is_waiting(plan: Plan, drawn: Network) -> None:
    """Handshakes, bursts, pieces, caches and offload are all explained by the formulas."""
    changes = PLAIN | {"handshake": drawn.handshake, "burst_bytes": drawn.burst_bytes}
    plan, parameters, timeline = simulated(plan, drawn.replace(**changes))
    assert breakdown(legs(timeline, parameters))["waiting"] == 0


ANSWERED = """
num_ranks 2
rank 0 {
r: recv 70000b from 1
s: send 70000b to 1
s irequires r
s requires r
}
rank 1 {
s: send 70000b to 0
r: recv 70000b from 0
}
"""


def test_a_request_waits_for_the_later_of_two_dependencies_on_one_task() -> None:
    """Both the posting of the first receive and its completion hold the second request."""
    costs = network("L=100,o=10,g=0,G=1,O=0,S=1000").replace(handshake=True)
    timeline = simulate(parse_goal(ANSWERED), costs)
    found = breakdown(legs(timeline, costs))
    assert found["waiting"] == 0
    assert found["bandwidth"] == pytest.approx(2 * 69_999)


TO_TWO = """
num_ranks 3
rank 0 {
a: send 1001b to 1
b: send 1001b to 2
}
rank 1 {
r: recv 1001b from 0
}
rank 2 {
r: recv 1001b from 0
}
"""


def test_turns_of_others_are_bandwidth() -> None:
    """Each message is on its way while the lane carries 2,000 bytes: its own and the other's."""
    costs = network("L=100,o=10,g=0,G=1,O=0,S=100000")
    costs = costs.replace(network=costs.network.replace(offload=True), turn_bytes=100)
    timeline = simulate(parse_goal(TO_TWO), costs)
    found = breakdown(legs(timeline, costs))
    assert found["waiting"] == 0
    assert found["latency"] == 100
    assert found["bandwidth"] >= 1900
    assert sum(found.values()) == timeline.makespan_ns


@pytest.mark.parametrize("handshake", [False, True])
def test_a_message_by_turns_takes_as_long_whatever_its_gap(handshake: bool) -> None:
    plan = parse_goal(
        TO_TWO.replace("b: send 1001b to 2", "").replace(
            "rank 2 {\nr: recv 1001b from 0", "rank 2 {"
        )
    )
    costs = network("L=100,o=10,g=3000,G=1,O=0,S=1000", handshake=handshake)
    whole, cut = (simulate(plan, costs.replace(turn_bytes=n)) for n in (None, 100))
    assert whole.end_ns[1] == cut.end_ns[1] == (220 if handshake else 0) + 120 + 1000


def test_a_rendezvous_by_turns_ends_with_its_match() -> None:
    """The receive is posted at 5,000, when the calculation ends; all bytes have left by then."""
    costs = network("L=100,o=10,g=20,G=1,O=0,S=1000")
    costs = costs.replace(network=costs.network.replace(offload=True))
    for turn_bytes in (None, 100):
        cut = costs.replace(turn_bytes=turn_bytes)
        timeline = simulate(parse_goal(LATE_RECEIVE), cut)
        assert timeline.end_ns[:2].tolist() == [5000, 5001]
        assert sum(breakdown(legs(timeline, cut)).values()) == timeline.makespan_ns


def test_no_turn_overtakes_one_whose_connection_is_fetched() -> None:
    """The first turn leaves 500 ns late; a burst would let all others pass meanwhile."""
    plan = parse_goal(TO_TWO)
    costs = network("L=100,o=10,g=0,G=1,O=0,S=100000", turn_bytes=100, burst_bytes=10_000)
    slow = simulate(plan, costs.replace(nic=Nic(connections=2, miss_ns=500)))
    recvs = slow.partner[:2]
    assert (slow.end_ns[recvs] >= slow.start_ns[:2] + 500 + 120 + 1000).all()
    assert slow.arrival_cause[0] == 0
    assert len(critical_rows(slow)) < 10


@settings(max_examples=examples(25), deadline=None)
@given(plans, st.lists(networks, min_size=2, max_size=4))
def test_simulating_each_is_simulating_one_by_one(plan: Plan, drawn: list[Network]) -> None:
    safe = [simulated(plan, each)[1] for each in drawn]
    for timeline, costs in zip(simulate_each(plan, safe), safe, strict=True):
        alone = simulate(plan, costs)
        for name in (
            "start_ns",
            "end_ns",
            "cause",
            "arrival_cause",
            "lane_busy_ns",
            "core_busy_ns",
        ):
            assert np.array_equal(getattr(timeline, name), getattr(alone, name)), name


@settings(max_examples=examples(25), deadline=None)
@given(networks, st.integers(1, 4), st.sampled_from(registry.kinds()))
def test_nothing_to_move_takes_no_bytes_time(parameters: Network, n_ranks: int, kind: str) -> None:
    """Messages of no bytes take what those of one byte take, less what a byte costs in memory."""
    for algorithm in registry.legal(kind, n_ranks, commutative=True):
        spec = make_spec(kind, algorithm.name, n_ranks, {"nodes": n_ranks}, count=0)
        plan, costs, timeline = simulated(compile_plan(spec, is_proved=False), parameters)
        assert (timeline.end_ns >= timeline.start_ns).all()
        free = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=6, O_ns_per_byte=2)
        bare = costs.replace(network=free, core=free, nic=None)
        assert simulate(plan, bare).makespan_ns == 0


def test_an_empty_message_is_one_of_a_byte() -> None:
    costs = network("L=100,o=1,g=2,G=6,O=3,S=1000")
    text = "num_ranks 2\nrank 0 {\ns: send 0b to 1\n}\nrank 1 {\nr: recv 0b from 0\n}"
    empty, one = (simulate(parse_goal(t), costs) for t in (text, text.replace("0b", "1b")))
    assert empty.end_ns.tolist() == one.end_ns.tolist() == [1, 102]


@settings(max_examples=examples(25), deadline=None)
@given(networks, st.sampled_from(registry.kinds()), st.integers(0, 50))
def test_one_rank_only_copies(parameters: Network, kind: str, count: int) -> None:
    for algorithm in registry.legal(kind, 1, commutative=True):
        spec = make_spec(kind, algorithm.name, 1, count=count)
        plan = compile_plan(spec, is_proved=False)
        timeline = simulate(plan, parameters)
        assert not (plan.op <= Op.RECV).any()
        assert timeline.makespan_ns >= timeline.core_busy_ns.sum()
        assert not timeline.lane_busy_ns.any()
        assert breakdown(legs(timeline, parameters))["latency"] == 0


@settings(max_examples=examples(60), deadline=None)
@given(cases)
def test_dependencies_are_kept(case: Case) -> None:
    plan, _, timeline = case
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before, kind = plan.deps.task, plan.deps.kind
    earliest = np.where(kind & ON_START, timeline.start_ns[before], timeline.end_ns[before])
    assert (timeline.start_ns[after] >= earliest).all()
    assert (timeline.end_ns >= timeline.start_ns).all()


@settings(max_examples=examples(40), deadline=None)
@given(cases)
def test_long_messages_wait_for_their_receives(case: Case) -> None:
    plan, parameters, timeline = case
    n_bytes = plan.elements * plan.itemsize
    long = np.flatnonzero((plan.op == Op.SEND) & (n_bytes > parameters.eager_limit_bytes))
    posted = timeline.start_ns[timeline.partner[long]]
    assert (timeline.end_ns[long] >= posted).all()
    assert set(np.flatnonzero(timeline.is_rendezvous)) <= set(long)
    assert timeline.is_asking.sum() == (len(long) if parameters.handshake else 0)
    if parameters.handshake:
        assert (timeline.start_ns[long] >= posted).all()


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_a_chain_takes_the_sum_of_its_parts(seed: int, n: int) -> None:
    durations = np.random.default_rng(seed).integers(0, 1000, n)
    lines = [f"l{i}: calc {ns}" for i, ns in enumerate(durations)]
    lines += [f"l{i} requires l{i - 1}" for i in range(1, n)]
    plan = parse_goal("num_ranks 1\nrank 0 {\n" + "\n".join(lines) + "\n}")
    timeline = simulate(plan)
    assert timeline.makespan_ns == durations.sum()


@settings(max_examples=examples(20), deadline=None)
@given(cases)
def test_same_plan_same_times(case: Case) -> None:
    plan, parameters, timeline = case
    again = simulate(plan, parameters)
    assert np.array_equal(timeline.start_ns, again.start_ns)
    assert np.array_equal(timeline.end_ns, again.end_ns)
    assert not again.start_ns.flags.writeable


def test_an_eager_message_by_turns_has_left_before_it_is_received() -> None:
    """The last of 1,000 bytes leaves at 1,010; the receive is posted at 5,000."""
    for turn_bytes in (None, 100):
        costs = network("L=100,o=10,g=0,G=1,O=0,S=100000", turn_bytes=turn_bytes)
        plan = parse_goal(LATE_RECEIVE)
        timeline = simulate(plan, costs)
        followers = np.flatnonzero((plan.op == Op.COMPUTE) & (plan.rank == 0))
        assert timeline.end_ns[followers].max() < 5000
