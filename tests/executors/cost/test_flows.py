"""Messages of plans over topologies: SimGrid's arrivals, bounds, symmetry, and what stays."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.cost.flows import find_routes
from collplan.executors.cost.simulator import Timeline, simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AsymmetricError
from collplan.planner.machine_code.interpreted import Interpreted
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.topology import fabric_of
from collplan.specs import Network, PlanSpec, SpecError, parse_spec
from folders import BENCHMARKS
from reference_topologies import REFERENCE_TOPOLOGIES, reference_topology
from tiers import examples

sys.path.insert(0, str(BENCHMARKS))

from message_files import find_platform, read_message_graph, read_platform
from message_simulation import simulate_messages

SPECS = sorted((Path(__file__).parent / "fluid" / "specs").glob("*.json"))
"""Specs of collectives with their platform, protocol, makespan and arrivals in SimGrid."""
FREE = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 0}
AT_ONCE = {"g_ns": 0, "G_ns_per_byte": 0}
"""Lanes that take no time, so that messages share all links of their routes."""


def bare(platform: str, latency_ns: float, *, is_long: bool) -> dict[str, Any]:
    """Return the network of the reference cases: bytes and latencies, and nothing else.

    As lanes take no time, messages share all links of their routes.
    """
    local = {**FREE, "L_ns": 200, "G_ns_per_byte": 0.1}
    # Its hosts are 16 nodes with two lanes.
    topology = reference_topology("star16" if platform == "star32" else platform)
    return {
        **dict.fromkeys(("core", "numa", "node"), local),
        "network": {**FREE, "offload": True},
        "eager_limit_bytes": 0 if is_long else "1GiB",
        "handshake": is_long,
        "copy_ns_per_byte": 0,
        "reduce_ns_per_byte": 0,
        "topology": {"bandwidth": "100Gbit"} | topology | {"latency_ns": latency_ns},
    }


def planned(fields: dict[str, Any]) -> tuple[Plan, PlanSpec]:
    spec = parse_spec(fields)
    return compile_plan(spec), spec


def with_network(spec: dict[str, Any], network: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "machine": {**spec["machine"], "network": network}}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_arrivals_are_those_of_simgrid(path: Path) -> None:
    """Requests to send take the latencies of routes, and have none in the cases: these get none."""
    case = json.loads(path.read_text())
    is_long = case["protocol"] == "rendezvous"
    expected, makespan = np.array(case["arrivals_s"]), case["makespan_s"]
    latency_ns: Any = reference_topology(case["platform"])["latency_ns"]
    if is_long:
        graph = read_message_graph(path.parents[1] / "cases" / path.name)
        platform = read_platform(find_platform(graph))
        latency_ns, platform = 0, replace(platform, latency_s=np.zeros_like(platform.latency_s))
        found = simulate_messages(graph, platform)
        expected, makespan = found.arrivals_s, found.makespan_s
    network = bare(case["platform"], latency_ns, is_long=is_long)
    plan, spec = planned(with_network(case["spec"], network))
    timeline = simulate(plan, spec.machine.network)
    sends = np.flatnonzero(plan.op == Op.SEND)
    arrivals = timeline.end_ns[timeline.partner[sends]]
    # Inside a node LogGP takes (s - 1)·G, and not s·G.
    hops = case["longest_local_chain"]
    assert timeline.makespan_ns == pytest.approx(1e9 * makespan, abs=0.1 * hops + 1e-3)
    if hops == 0:
        assert arrivals == pytest.approx(1e9 * expected, rel=1e-9)


def test_there_are_cases_of_all_kinds_of_platforms() -> None:
    kinds = {
        REFERENCE_TOPOLOGIES[json.loads(path.read_text())["platform"]]["kind"] for path in SPECS
    }
    assert kinds == {"fat_tree", "torus", "dragonfly"}


KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("allreduce", "ring", {"op": "sum"}),
    ("allreduce", "recursive_doubling", {"op": "sum"}),
    ("allreduce", "rabenseifner", {"op": "sum"}),
    ("bcast", "binomial", {}),
    ("bcast", "chain", {}),
    ("alltoall", "linear", {}),
    ("alltoall", "pairwise", {}),
    ("allgather", "bruck", {}),
    ("gather", "binomial", {}),
]
SHAPES: list[dict[str, Any]] = [
    {"kind": "fat_tree", "down": [3, 4], "up": [1, 1]},
    {"kind": "fat_tree", "down": [2, 2, 3], "oversubscription": 2},
    {"kind": "dragonfly", "groups": 3, "routers": 2, "hosts": 2},
    {"kind": "dragonfly", "groups": 4, "routers": 2, "hosts": 2, "routing": "valiant"},
    {"kind": "torus", "dimensions": [3, 4]},
]
FEATURES: list[dict[str, Any]] = [
    {},
    {"eager_limit_bytes": 0},
    {"eager_limit_bytes": 0, "handshake": True},
    {"eager_limit_bytes": 100, "turn_bytes": 4096},
    {"eager_limit_bytes": 100, "turn_bytes": 4096, "handshake": True},
    {"burst_bytes": 10000},
    {"network": {"offload": True}},
    {"nic": {"connections": 2, "miss_ns": 700}},
]


@st.composite
def cases(draw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Specs of at most 12 nodes without a topology, and features of their networks."""
    kind, algorithm, extra = draw(st.sampled_from(KINDS))
    count = draw(st.sampled_from([0, 1, 2, 300, 20000]))
    machine = {
        "nodes": draw(st.integers(2, 12)),
        "ranks_per_node": draw(st.sampled_from([1, 1, 2])),
        "lanes": draw(st.sampled_from([1, 1, 2, ["100Gbit", "50Gbit"]])),
    }
    collective = {"kind": kind, "count": count, "datatype": "int32", **extra}
    spec = {"machine": machine, "collective": collective, "algorithms": algorithm}
    return spec, draw(st.sampled_from(FEATURES))


def priced(
    spec: dict[str, Any], network: dict[str, Any], topology: dict[str, Any] | None
) -> Timeline:
    fields = network if topology is None else {**network, "topology": topology}
    plan, made = planned(with_network(spec, fields))
    return simulate(plan, made.machine.network)


@settings(max_examples=examples(30), deadline=None)
@given(cases(), st.sampled_from(SHAPES))
def test_an_infinitely_fast_topology_changes_nothing(case: Any, shape: dict[str, Any]) -> None:
    spec, network = case
    fast = {**shape, "bandwidth": "1000000Gbit"}
    fast.pop("oversubscription", None)
    before = priced(spec, network, None)
    after = priced(spec, network, fast)
    assert after.makespan_ns == pytest.approx(before.makespan_ns, rel=1e-9, abs=1e-3)
    assert after.end_ns == pytest.approx(before.end_ns, rel=1e-9, abs=1e-2)


@settings(max_examples=examples(40), deadline=None)
@given(cases(), st.sampled_from([0.0, 120.0]))
def test_a_star_changes_nothing_but_the_latency(case: Any, latency: float) -> None:
    spec, network = case
    star = {"kind": "fat_tree", "down": [12], "latency_ns": latency}
    own = dict(network.get("network", {}))
    slow = {**network, "network": {**own, "L_ns": 1000 + 2 * latency}}
    before = priced(spec, slow, None)
    after = priced(spec, network, star)
    assert after.end_ns.tolist() == pytest.approx(before.end_ns.tolist(), rel=1e-12)


def busiest_ns(timeline: Timeline, network: Network) -> tuple[float, float]:
    """Return the time that the bytes of the busiest link take, and one byte of each message."""
    assert timeline.plan.spec is not None
    machine = timeline.plan.spec.machine.replace(network=network)
    fabric = fabric_of(machine)
    assert fabric is not None
    routes = find_routes(timeline.places, fabric)
    sizes = np.repeat(routes.n_bytes, np.diff(routes.begin))
    n_bytes = np.bincount(routes.links, sizes, minlength=fabric.n_links)
    messages = np.bincount(routes.links, minlength=fabric.n_links)
    per_byte = 1e9 / fabric.bandwidth
    if not len(n_bytes):
        return 0.0, 0.0
    busiest = int(np.argmax(n_bytes * per_byte))
    return float((n_bytes * per_byte)[busiest]), float((messages * per_byte)[busiest])


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.sampled_from(SHAPES), st.floats(0.05, 4))
def test_no_makespan_is_below_its_bounds(case: Any, shape: dict[str, Any], factor: float) -> None:
    spec, network = case
    network = {key: value for key, value in network.items() if key not in ("burst_bytes", "nic")}
    rate = round(factor * 100e9)
    topology = {**shape, "bandwidth": f"{rate}bit", "latency_ns": 50}
    timeline = priced(spec, network, topology)
    made = parse_spec(with_network(spec, {**network, "topology": topology})).machine.network
    bytes_ns, first_ns = busiest_ns(timeline, made)
    # Lanes in order take the first byte of a message with its latency.
    slack = first_ns if factor >= 0.999 else 0.0
    assert timeline.makespan_ns >= (bytes_ns - slack) * (1 - 1e-9)
    fast = {**topology, "bandwidth": f"{2**59}bit"}
    fast.pop("oversubscription", None)
    hurry = {name: {**FREE, "L_ns": latency} for name, latency in LATENCIES.items()}
    rest = {key: network[key] for key in network if key not in ("network",)}
    lean = {**rest, **hurry, "copy_ns_per_byte": 0, "reduce_ns_per_byte": 0}
    # Lanes that take no time per byte have no rates.
    lanes = spec["machine"].get("lanes", 1)
    counted = {**spec["machine"], "lanes": lanes if isinstance(lanes, int) else len(lanes)}
    chain = priced({**spec, "machine": counted}, lean, fast)
    assert timeline.makespan_ns >= chain.makespan_ns * (1 - 1e-9) - 1e-6


LATENCIES = {"core": 100, "numa": 200, "node": 350, "network": 1000}


@settings(max_examples=examples(30), deadline=None)
@given(cases())
def test_more_bandwidth_where_nothing_waits_changes_nothing(case: Any) -> None:
    spec, network = case
    ends = []
    for top in (10_000, 30_000):
        thick = {"kind": "fat_tree", "down": [3, 4], "up": [1, 1]}
        thick["bandwidth"] = ["100Gbit", f"{top}Gbit"]
        ends.append(priced(spec, network, thick).end_ns)
    assert ends[1] == pytest.approx(ends[0], rel=1e-9, abs=1e-3)


@pytest.mark.quick
@pytest.mark.parametrize("n", [3, 5, 7])
@pytest.mark.parametrize("passing", [{}, AT_ONCE], ids=["lanes", "at once"])
@pytest.mark.parametrize(
    ("kind", "algorithm"), [("allgather", "ring"), ("allgather", "bruck"), ("alltoall", "linear")]
)
def test_symmetric_traffic_ends_symmetrically(
    n: int, passing: dict[str, Any], kind: str, algorithm: str
) -> None:
    """On rings of odd lengths nothing distinguishes one rank from another."""
    collective = {"kind": kind, "count": 5000, "datatype": "int32"}
    spec = {"machine": {"nodes": n}, "collective": collective, "algorithms": algorithm}
    ring = {"kind": "torus", "dimensions": [n], "latency_ns": 100, "bandwidth": "50Gbit"}
    timeline = priced(spec, {"network": passing}, ring)
    ends = [timeline.end_ns[timeline.plan.rank == rank].max() for rank in range(n)]
    assert ends == pytest.approx([ends[0]] * n, rel=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("passing", [{}, AT_ONCE], ids=["lanes", "at once"])
@pytest.mark.parametrize("features", FEATURES[:4], ids=str)
def test_machine_code_computes_the_same(
    passing: dict[str, Any], features: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    collective = {"kind": "alltoall", "count": 3000, "datatype": "int32"}
    machine = {"nodes": 8, "ranks_per_node": 2, "lanes": 2}
    spec = {"machine": machine, "collective": collective, "algorithms": "linear"}
    shape = {"kind": "fat_tree", "down": [4, 2], "oversubscription": 4, "latency_ns": 75}
    shape, network = shape | {"bandwidth": "100Gbit"}, features | {"network": passing}
    times = []
    for is_compiled in (False, True):
        monkeypatch.setattr(Interpreted, "has_time_for", lambda *_, no=is_compiled: not no)
        times.append(priced(spec, network, shape).end_ns.tolist())
    assert times[0] == times[1]


def test_contention_is_felt_and_lanes_keep_their_order() -> None:
    """Two nodes behind one link: half the rate; a lane serves one message after another."""
    tree = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}
    spec = {
        "machine": {"nodes": 4},
        "collective": {"kind": "allreduce", "count": 10**6, "datatype": "uint8", "op": "max"},
        "algorithms": "recursive_doubling",
    }
    free = {"reduce_ns_per_byte": 0}
    alone, shared = priced(spec, free, None), priced(spec, free, tree)
    assert shared.makespan_ns - alone.makespan_ns == pytest.approx(8e4, rel=1e-4)
    bcast = {
        "machine": {"nodes": 4},
        "collective": {"kind": "bcast", "count": 10**6, "datatype": "uint8"},
        "algorithms": "linear",
    }
    star = {"kind": "fat_tree", "down": [4], "bandwidth": "100Gbit"}
    ordered, fluid = (priced(bcast, {"network": own}, star) for own in ({}, AT_ONCE))
    recvs = np.flatnonzero(ordered.plan.op == Op.RECV)
    assert len(np.unique(np.rint(ordered.end_ns[recvs] / 1e4))) == 3
    assert len(np.unique(np.rint(fluid.end_ns[recvs] / 1e4))) == 1
    assert fluid.makespan_ns == pytest.approx(ordered.makespan_ns, rel=0.01)


def test_sends_above_the_eager_limit_end_with_their_flows() -> None:
    """The second of two messages that use a link in turn begins when the first has flowed."""
    for limit, begins in ((0, [0, 50_100]), (10**6, [0, 0])):
        document = {
            "machine": {
                "nodes": 2,
                "network": {
                    "network": FREE,
                    "copy_ns_per_byte": 0,
                    "eager_limit_bytes": limit,
                    "topology": {
                        "kind": "torus", "dimensions": [2], "bandwidth": "1GB/s", "latency_ns": 100,
                    },
                },
            },
            "collective": {"kind": "bcast", "count": 100_000, "datatype": "int8"},
            "algorithms": {"name": "packed", "blocks": 2},
        }  # fmt: skip
        plan, _ = planned(document)
        timeline = simulate(plan)
        assert timeline.start_ns[plan.op == Op.SEND].tolist() == begins
        assert timeline.makespan_ns == (100_200 if limit == 0 else 100_100)


def test_a_slower_link_of_a_host_is_one_that_messages_share() -> None:
    spec = {
        "machine": {"nodes": 2},
        "collective": {"kind": "bcast", "count": 10**6, "datatype": "uint8"},
        "algorithms": "linear",
    }
    slow = {"kind": "fat_tree", "down": [2], "bandwidth": "10Gbit"}
    assert priced(spec, {}, slow).makespan_ns == pytest.approx(1600 + 8e5, rel=1e-6)


def test_folded_plans_are_refused_and_topologies_that_do_not_fit() -> None:
    fields = {
        "machine": {"nodes": 8, "network": {"topology": {"kind": "torus", "dimensions": [8]}}},
        "collective": {"kind": "allgather", "count": 8, "datatype": "int32"},
        "algorithms": "ring",
    }
    spec = parse_spec(fields)
    with pytest.raises(AsymmetricError, match=r"network\.topology"):
        simulate(compile_folded(spec), spec.machine.network)
    small = Network(topology={"kind": "torus", "dimensions": [4]})
    with pytest.raises(SpecError, match="more nodes than hosts: nodes is 8"):
        simulate(compile_plan(spec), small)
