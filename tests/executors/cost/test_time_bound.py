"""Lower bounds of the makespan: no plan beats them, and optimal plans meet them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.executors.cost.time_bound import NO_BOUND, spread, time_bound
from collplan.planner import compile_plan
from collplan.select.comparison import compare
from collplan.specs import PlanSpec
from neighborhoods import KINDS as NEIGHBORHOODS
from neighborhoods import random_graph

KINDS = (
    "bcast", "scatter", "gather", "reduce", "allgather", "allreduce", "alltoall", "scan", "exscan",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
FEW_PAIRS = {"connections": 1, "miss_ns": 300}
DATAGRAMS = {"connections": 1, "miss_ns": 0, "packet_ns": 50, "transport": "ud"}
ROOTED = ("bcast", "scatter", "gather", "reduce")


def spec_of(kind: str, machine: dict[str, Any], count: int = 1024, **fields: Any) -> PlanSpec:
    collective: dict[str, Any] = {"kind": kind}
    if kind != "barrier":
        collective |= {"count": count, **fields}
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


@pytest.mark.quick
@pytest.mark.parametrize(
    ("n_places", "time"), [(2, 10), (3, 14), (4, 18), (5, 20), (8, 24), (9, 26)]
)
def test_one_item_spreads_as_in_the_logp_paper(n_places: int, time: float) -> None:
    """L = 6, g = 4, o = 2: eight processors know after 24, Karp et al. 1993, figure 1."""
    assert spread(n_places, 4.0 * np.arange(max(1, n_places - 1)), 6 + 2 * 2) == time


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(30))
def test_spreading_is_the_greedy_schedule(seed: int) -> None:
    """The same by a list of the times at which every place knows."""
    rng = random.Random(seed)
    message, gap, n_lanes = rng.choice((5, 17, 100)), rng.choice((1, 3, 20)), rng.choice((1, 2, 3))
    n_places = rng.randrange(2, 40)
    known = [0]
    for _ in range(n_places - 1):
        taken = [0] * len(known)
        for time in sorted(known)[1:]:
            # Every message that arrived was the earliest that anybody could send.
            sender = min(
                range(len(known)),
                key=lambda one: known[one] + taken[one] // n_lanes * gap,
            )
            taken[sender] += 1
            assert known[sender] + (taken[sender] - 1) // n_lanes * gap + message == time
        sender = min(range(len(known)), key=lambda one: known[one] + taken[one] // n_lanes * gap)
        known.append(known[sender] + taken[sender] // n_lanes * gap + message)
        known.sort()
    starts = np.arange(n_places) // n_lanes * float(gap)
    assert spread(n_places, starts, float(message)) == max(known)


def random_machine(rng: random.Random) -> dict[str, Any]:
    """Return a small machine with some of all features of the cost model."""
    nodes, ranks = rng.choice((1, 1, 2, 3, 5)), rng.choice((1, 2, 3, 4))
    network: dict[str, Any] = {
        name: {
            "L_ns": rng.choice((0, 50, 2000)),
            "o_ns": rng.choice((0, 10, 300)),
            "g_ns": rng.choice((0, 100, 700)),
            "G_ns_per_byte": rng.choice((0, 0.01, 0.08, 2)),
            "O_ns_per_byte": rng.choice((0, 0, 0.05, 0.4)),
            "offload": rng.random() < 0.3,
        }
        for name in ("core", "numa", "node", "network")
        if rng.random() < 0.4
    }
    for name, values in (
        ("copy_ns_per_byte", (0, 0.01, 1.5)),
        ("reduce_ns_per_byte", (0, 0.01, 1.5)),
        ("memory_ns_per_byte", (0.05, 0.3)),
        ("processors", (1, 3)),
        ("turn_bytes", (16, 1000)),
        ("burst_bytes", (16, 50000)),
        ("handshake", (True,)),
        ("eager_limit_bytes", (0, 100)),
        ("nic", (FEW_PAIRS, DATAGRAMS)),
    ):  # fmt: skip
        if rng.random() < 0.2:
            network[name] = rng.choice(values)
    if nodes > 1 and rng.random() < 0.25:
        network["topology"] = rng.choice(
            (
                {"kind": "fat_tree", "down": [2, 4], "oversubscription": 2},
                {"kind": "torus", "dimensions": [2, 4]},
                {"kind": "dragonfly", "groups": 3, "routers": 2, "hosts": 2},
            )
        )
    return {
        "nodes": nodes,
        "ranks_per_node": [rng.randint(1, ranks) for _ in range(nodes)],
        "lanes": rng.choice((1, 2, 3)) if "network" in network else ["100Gbit", "25Gbit"],
        "rank_order": rng.choice(("block", "cyclic")),
        "cores": ranks + rng.choice((0, 0, 1, 3)),
        "network": network,
    }


@pytest.mark.many
@pytest.mark.parametrize("seed", range(16))
def test_no_candidate_is_faster_than_a_term_of_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    machine = random_machine(rng)
    n_ranks = sum(machine["ranks_per_node"])
    fields: dict[str, Any] = {"datatype": rng.choice(("int32", "float64"))}
    if kind in ROOTED:
        fields["root"] = rng.randrange(n_ranks)
    if kind != "bcast" and rng.random() < 0.4:
        fields["in_place"] = True
    spec = spec_of(kind, machine, rng.choice((1, 2, 7, 64, 3000)), **fields)
    found = compare([spec], seconds=2, prune=rng.random() < 0.5)
    bound = time_bound(spec)
    least_s = min(found.makespans.values(), default=np.inf)
    for name, term_s in bound.terms.items():
        assert least_s >= term_s * (1 - 1e-9), (name, found.leading, spec)


@pytest.mark.many
@pytest.mark.parametrize("seed", range(40))
def test_no_plan_on_a_graph_is_faster_than_a_term_of_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    machine, kind = random_machine(rng), NEIGHBORHOODS[seed % len(NEIGHBORHOODS)]
    fields = random_graph(rng, kind, sum(machine["ranks_per_node"]))
    if not kind.endswith("v"):
        fields["count"] = rng.choice((1, 7, 64, 3000))
    elif rng.random() < 0.5:
        fields["counts"] = [100 * count for count in fields["counts"]]
    collective = {"kind": kind, "datatype": "int32", **fields}
    for transport in ("messages", "shared"):
        spec = PlanSpec.model_validate(
            {"machine": machine, "collective": collective, "transport": transport}
        )
        bound = time_bound(spec)
        for name in ("flat", "hierarchical", "full_lane"):
            plan = compile_plan(spec.replace(decomposition=name), is_proved=False)
            makespan_s = simulate(plan, spec.machine.network).makespan_s
            for term, term_s in bound.terms.items():
                assert makespan_s >= term_s * (1 - 1e-9), (term, name, spec)


def test_bursts_take_no_time_in_any_term() -> None:
    """Adapters write what a burst brings, so that neither cores nor lanes are busy for long."""
    network = {"network": {"offload": True, "L_ns": 2000, "o_ns": 10}, "burst_bytes": 50_000}
    machine = {"nodes": 5, "lanes": 2, "cores": 2, "network": network}
    counts = [[3000 * (abs(i - j) == 1) for j in range(5)] for i in range(5)]
    collective = {"kind": "alltoallv", "counts": counts, "datatype": "int32"}
    spec = PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "algorithms": "linear"}
    )
    makespan_s = simulate(compile_plan(spec), spec.machine.network).makespan_s
    assert max(time_bound(spec).terms.values()) <= makespan_s * (1 + 1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("policy", ["bind", "numa", "odd_even"])
@pytest.mark.parametrize("kind", ["bcast", "allgather", "gather", "scan"])
def test_free_cores_beat_no_bound(kind: str, policy: str) -> None:
    machine = {"nodes": 2, "ranks_per_node": 3, "cores": 6, "lanes": 2, "numa_domains": 2}
    spec = spec_of(kind, machine, 5000)
    moved = [{"name": "place_progress", "policy": policy}]
    plan = compile_plan(PlanSpec.model_validate({**spec.model_dump(), "passes": moved}))
    assert simulate(plan).makespan_s >= time_bound(spec).time_s


@pytest.mark.parametrize(("kind", "name", "machine", "count", "most"), [
    ("gather", "results", {"ranks_per_node": 8}, 100_000, 1.01),
    ("allgather", "results", {"nodes": 16}, 100_000, 1.1),
    ("scatter", "lanes", {"nodes": 8}, 100_000, 1.05),
    ("bcast", "lanes", {"nodes": 2}, 1, 1.01),
    ("barrier", "spread", {"nodes": 2}, 1, 1.01),
    ("reduce", "reductions", {"ranks_per_node": 2}, 100_000, 2.6),
])  # fmt: skip
def test_the_bound_is_near_the_best_plan_where_one_resource_decides(
    kind: str, name: str, machine: dict[str, Any], count: int, most: float
) -> None:
    spec = spec_of(kind, machine, count)
    bound, found = time_bound(spec), compare([spec])
    assert bound.name == name
    assert bound.time_s <= min(found.makespans.values()) <= most * bound.time_s


def test_links_between_groups_bound_a_tapered_tree() -> None:
    tree = {"kind": "fat_tree", "down": [4, 4], "oversubscription": 4, "bandwidth": "25Gbit"}
    spec = spec_of("alltoall", {"nodes": 16, "network": {"topology": tree}}, 10_000)
    bound = time_bound(spec)
    assert bound.name == "links"
    assert simulate(compile_plan(spec)).makespan_s >= bound.time_s
    assert bound.time_s > 4 * bound.terms["lanes"]


def test_bytes_between_switches_need_links_between_switches() -> None:
    """Two switches of one group: four links within groups, two between them, and none of hosts."""
    dragonfly = {"kind": "dragonfly", "groups": 2, "routers": 2, "hosts": 2, "bandwidth": "8Gbit"}
    spec = spec_of("alltoall", {"nodes": 4, "network": {"topology": dragonfly}}, 1024)
    n_bytes = 4 * 2 * 1024 * spec.collective.itemsize
    assert time_bound(spec).terms["links"] == pytest.approx(n_bytes / 6e9)


def test_allocated_buffers_need_no_copies() -> None:
    spec = spec_of("allgather", {"ranks_per_node": 4}, 100_000)
    assert set(time_bound(spec).terms) == {"spread", "results", "sources"}
    assert set(time_bound(spec, allocated=True).terms) == {"spread"}


def test_a_collective_that_moves_nothing_has_no_bound() -> None:
    assert time_bound(spec_of("bcast", {"nodes": 4}, 0)) == NO_BOUND
    assert time_bound(spec_of("bcast", {"nodes": 1})) == NO_BOUND


def test_a_faster_network_has_a_lower_bound() -> None:
    spec = spec_of("allgather", {"nodes": 4}, 10_000)
    network = spec.machine.network
    fast = network.replace(network=network.network.replace(G_ns_per_byte=0.01))
    assert time_bound(spec, fast).terms["lanes"] < time_bound(spec).terms["lanes"] / 5
