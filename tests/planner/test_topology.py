"""Topologies: SimGrid's routes, routes that hang together, switches and groups, and lanes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner.machine_code.interpreted import Interpreted
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.topology import Fabric, fabric_of
from collplan.planner.topology.hashing import spread
from collplan.planner.topology.links import GLOBAL, GROUP, HOST, LINK_CLASSES, SWITCH
from collplan.specs import Machine
from collplan.specs.topology.files import read_graph
from folders import ROOT
from reference_topologies import REFERENCE_TOPOLOGIES, reference_topology
from tiers import examples

PLATFORMS = ROOT / "tests" / "executors" / "cost" / "fluid" / "platforms"
SHAPES: list[dict[str, Any]] = [
    *REFERENCE_TOPOLOGIES.values(),
    {"kind": "fat_tree", "down": [3, 2, 2, 2], "up": [1, 2, 1, 3]},
    {"kind": "fat_tree", "down": [2, 3, 4], "routing": "ecmp", "seed": 5},
    {"kind": "dragonfly", "groups": 5, "routers": 3, "hosts": 2, "links": 2},
    {"kind": "dragonfly", "groups": 4, "routers": 3, "hosts": 2, "routing": "valiant"},
    {"kind": "dragonfly", "groups": 4, "routers": 2, "hosts": 2, "spines": 3, "links": 2},
    {
        "kind": "dragonfly", "groups": 5, "routers": 2, "hosts": 2, "spines": 2,
        "routing": "valiant", "seed": 3,
    },
    {"kind": "dragonfly", "groups": 1, "routers": 1, "hosts": 3},
    {"kind": "torus", "dimensions": [2, 3, 1, 4], "group_dimensions": 2},
    {"kind": "torus", "dimensions": [4, 3], "wrap": [False, True]},
]  # fmt: skip


def fabric(topology: dict[str, Any], **machine: Any) -> Fabric:
    found = fabric_of(Machine.model_validate({**machine, "network": {"topology": topology}}))
    assert found is not None
    return found


def all_routes(one: Fabric, lane: int = 0) -> dict[tuple[int, int], list[int]]:
    hosts = np.arange(one.n_hosts)
    source, target = (grid.ravel() for grid in np.meshgrid(hosts, hosts, indexing="ij"))
    begin, links = one.routes(source, target, lane)
    routes = np.split(links, begin[1:-1])
    pairs = zip(source.tolist(), target.tolist(), strict=True)
    return {pair: route.tolist() for pair, route in zip(pairs, routes, strict=True)}


@pytest.mark.quick
@pytest.mark.parametrize("name", REFERENCE_TOPOLOGIES)
def test_routes_are_those_of_simgrid(name: str) -> None:
    platform = json.loads((PLATFORMS / f"{name}.json").read_text())
    ours = fabric(reference_topology(name), nodes=platform["hosts"])
    assert ours.n_links == len(platform["links"])
    there: dict[int, int] = {}
    for (a, b), route in all_routes(ours).items():
        expected = platform["routes"][a][b] or []
        assert len(route) == len(expected)
        for link, its in zip(route, expected, strict=True):
            assert there.setdefault(link, its) == its
    assert len(set(there.values())) == len(there)
    for link, its in there.items():
        reference = platform["links"][its]
        assert ours.bandwidth[link] == pytest.approx(reference["bandwidth_B_per_s"], rel=1e-12)
        assert ours.latency_ns[link] == pytest.approx(1e9 * reference["latency_s"], rel=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("topology", SHAPES, ids=str)
def test_routes_lead_from_host_to_host(topology: dict[str, Any]) -> None:
    one = fabric(topology)
    used = set()
    for (a, b), route in all_routes(one).items():
        used.update(route)
        assert len(set(route)) == len(route)
        ends = [one.link_name(link).partition(" (")[0].split(" to ") for link in route]
        assert not ends or (ends[0][0], ends[-1][1]) == (f"host {a}", f"host {b}")
        assert all(before[1] == after[0] for before, after in pairwise(ends))
        assert (a == b) == (not route)
        classes = [int(one.link_class[link]) for link in route]
        if a != b and HOST in classes:
            assert [i for i, kind in enumerate(classes) if kind == HOST] == [0, len(route) - 1]
            assert (one.host_switch[a] == one.host_switch[b]) == (len(route) == 2)
        assert (GLOBAL in classes) == (one.host_group[a] != one.host_group[b])
    names = [one.link_name(link) for link in range(one.n_links)]
    assert len(set(names)) == len(names)
    assert used <= set(range(one.n_links))


@pytest.mark.quick
@pytest.mark.parametrize("topology", SHAPES, ids=str)
def test_machine_code_finds_the_same_routes(topology: dict[str, Any], monkeypatch: Any) -> None:
    one = fabric(topology)
    interpreted = all_routes(one)
    monkeypatch.setattr(Interpreted, "has_time_for", lambda *_: False)
    assert all_routes(one) == interpreted


def test_minimal_routes_are_no_longer_than_shortest_ones() -> None:
    for topology in SHAPES:
        one = fabric(topology)
        graph = networkx.DiGraph(
            one.link_name(link).partition(" (")[0].split(" to ") for link in range(one.n_links)
        )
        is_shortest = topology["kind"] != "dragonfly"
        for (a, b), route in all_routes(one).items():
            least = networkx.shortest_path_length(graph, f"host {a}", f"host {b}")
            assert len(route) == least if is_shortest else len(route) >= least
            if topology.get("routing") == "valiant" and one.host_group[a] != one.host_group[b]:
                kinds = [LINK_CLASSES[one.link_class[link]] for link in route]
                assert kinds.count("global") == 2


def test_classes_of_levels() -> None:
    tree = fabric({"kind": "fat_tree", "down": [2, 2, 2, 2]})
    route = all_routes(tree)[0, 15]
    kinds = [int(tree.link_class[link]) for link in route]
    assert kinds == [HOST, SWITCH, GROUP, GLOBAL, GLOBAL, GROUP, SWITCH, HOST]
    assert tree.host_group.tolist() == [0] * 8 + [1] * 8
    star = fabric({"kind": "fat_tree", "down": [5]})
    assert set(star.link_class.tolist()) == {HOST}
    assert set(star.host_group.tolist()) == {0}
    thin = fabric({"kind": "fat_tree", "down": [1, 4]})
    assert thin.host_group.tolist() == [0, 1, 2, 3]
    tofu = fabric({"kind": "torus", "dimensions": [2, 3, 2], "group_dimensions": 2})
    assert tofu.host_group.tolist() == [0] * 6 + [1] * 6
    assert tofu.host_switch.tolist() == list(range(12))


def test_lanes_have_planes_or_share_one() -> None:
    topology = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}
    machine = {"nodes": 4, "ranks_per_node": 2, "lanes": ["100Gbit", "25Gbit"]}
    planes = fabric(topology, **machine)
    shared = fabric({**topology, "lanes": "shared"}, **machine)
    routes = [[all_routes(one, lane) for lane in (0, 1)] for one in (planes, shared)]
    for pair in ((0, 1), (0, 3)):
        assert not set(routes[0][0][pair]) & set(routes[0][1][pair])
        assert not {routes[1][0][pair][0]} & {routes[1][1][pair][0]}
        assert routes[1][0][pair][1:-1] == routes[1][1][pair][1:-1]
    assert (planes.n_links, shared.n_links) == (24, 20)
    for one, (first, second) in zip((planes, shared), routes, strict=True):
        assert one.bandwidth[first[0, 3]] == pytest.approx([12.5e9] * 4)
        assert one.bandwidth[second[0, 3]] == pytest.approx([3.125e9, 12.5e9, 12.5e9, 3.125e9])
        assert one.link_name(second[0, 3][0]) == "host 0 to switch 1.0, lane 1"


def test_nodes_are_hosts() -> None:
    one = fabric(
        {"kind": "dragonfly", "groups": 33, "routers": 8, "hosts": 4},
        nodes=3,
        placement=[0, 1055, 32],
    )
    assert one.node_group.tolist() == [0, 32, 1]
    assert one.node_switch.tolist() == [0, 263, 8]
    begin, links = one.node_routes(np.array([0, 1]), np.array([2, 1]))
    assert np.diff(begin).tolist() == [4, 0]
    assert one.link_name(int(links[0])) == "host 0 to switch 0.0"


def test_rates_follow_the_lane() -> None:
    star = {"kind": "fat_tree", "down": [2]}
    per_byte = {"network": {"G_ns_per_byte": 0.04}, "topology": star}
    one = fabric_of(Machine.model_validate({"network": per_byte}))
    assert one is not None
    assert one.bandwidth == pytest.approx([25e9] * 4)
    free = {"network": {"G_ns_per_byte": 0}, "topology": star}
    one = fabric_of(Machine.model_validate({"network": free}))
    assert one is not None
    assert np.isfinite(one.bandwidth).all()
    assert fabric_of(Machine()) is None


def test_platforms_are_graphs_with_given_routes() -> None:
    for name in ("fattree_2to1", "torus_4x4", "dragonfly_24"):
        platform = json.loads((PLATFORMS / f"{name}.json").read_text())
        graph = {"kind": "graph", **read_graph(PLATFORMS / f"{name}.json")}
        given, ours = fabric(graph), fabric(reference_topology(name))
        for (a, b), route in all_routes(given).items():
            assert route == (platform["routes"][a][b] or [])
        assert given.host_switch.tolist() == ours.host_switch.tolist()
        hosts = [int((one.link_class == HOST).sum()) for one in (given, ours)]
        assert hosts[0] == hosts[1]
        assert given.link_name(3) == platform["links"][3]["name"]


def chain(n: int) -> dict[str, Any]:
    names = [f"h{i}" for i in range(n)]
    links = [{"source": name, "target": f"s{i // 2}"} for i, name in enumerate(names)]
    links += [{"source": f"s{i}", "target": f"s{i + 1}"} for i in range((n - 1) // 2)]
    return {"kind": "graph", "hosts": names, "links": links}


def test_graphs_have_switches_and_groups() -> None:
    one = fabric(chain(6))
    assert one.host_switch.tolist() == one.host_group.tolist() == [0, 0, 1, 1, 2, 2]
    names = [one.link_name(link) for link in all_routes(one)[0, 5]]
    assert names == ["h0 to s0", "s0 to s1", "s1 to s2", "s2 to h5"]
    assert [int(one.link_class[link]) for link in all_routes(one)[0, 5]] == [HOST, 3, 3, HOST]
    grouped = fabric({**chain(6), "groups": [7, 7, 7, 7, 2, 2]})
    assert grouped.host_group.tolist() == [0, 0, 0, 0, 1, 1]
    assert [int(grouped.link_class[link]) for link in all_routes(grouped)[0, 5]] == [0, 2, 3, 0]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(2, 12), st.integers(0, 20), st.integers(0, 2**31 - 1), st.booleans())
def test_routes_of_graphs_are_shortest(n: int, more: int, seed: int, is_hashed: bool) -> None:
    random = np.random.default_rng(seed)
    ends = [(int(random.integers(i)), i) for i in range(1, n)]
    ends += [(int(a), int(b)) for a, b in random.integers(n, size=(more, 2)) if a != b]
    links = [{"source": f"v{a}", "target": f"v{b}"} for a, b in dict.fromkeys(ends)]
    hosts = [f"v{i}" for i in range(0, n, 2)]
    routing = {"routing": "ecmp" if is_hashed else "shortest", "seed": seed % 1000}
    one = fabric({"kind": "graph", "hosts": hosts, "links": links, **routing})
    graph = networkx.Graph([(f"v{a}", f"v{b}") for a, b in ends])
    for (a, b), route in all_routes(one).items():
        assert len(route) == networkx.shortest_path_length(graph, hosts[a], hosts[b])
        names = [one.link_name(link).split(" to ") for link in route]
        assert all(before[1] == after[0] for before, after in pairwise(names))
        assert not names or (names[0][0], names[-1][1]) == (hosts[a], hosts[b])


def test_hashes_spread_routes_over_equal_ways() -> None:
    spines = [{"source": f"l{i}", "target": f"s{j}"} for i in range(2) for j in range(4)]
    hosts = [{"source": f"h{i}", "target": f"l{i // 8}"} for i in range(16)]
    graph = {"kind": "graph", "hosts": [f"h{i}" for i in range(16)], "links": [*hosts, *spines]}
    tree = {"kind": "fat_tree", "down": [8, 2], "up": [1, 4]}
    for topology in (graph, tree):
        for seed in (0, 1, 77):
            one = fabric({**topology, "routing": "ecmp", "seed": seed})
            routes = all_routes(one)
            ups = [routes[a, b][1] for a in range(8) for b in range(8, 16)]
            counts = np.unique(ups, return_counts=True)[1]
            assert len(counts) == 4
            assert counts.max() <= 28, counts
    first = fabric({**tree, "routing": "ecmp", "seed": 1})
    second = fabric({**tree, "routing": "ecmp", "seed": 2})
    assert all_routes(first) != all_routes(second)
    assert all_routes(first) == all_routes(fabric({**tree, "routing": "ecmp", "seed": 1}))


HASHED = {
    (0, 0, 0, 0): 2108864918,
    (1, 2, 3, 4): 1551433220,
    (7, 1000, 3, 0): 1327911120,
    (7, 3, 1000, 0): 1572805512,
    (2**31, 0, 1, 2): 1060218939,
}


@compiled
def hashed(seed: int, one: int, other: int, turn: int) -> int:
    return spread(seed, one, other, turn)


def test_the_hash_of_routes_is_even_and_stays_what_it_is() -> None:
    """Prices of earlier versions remain comparable."""
    assert [hashed(*words) for words in HASHED] == list(HASHED.values())
    found = [hashed(1, one, other, 0) for one in range(40) for other in range(40)]
    assert all(0 <= value < 2**31 for value in found)
    for n_ways in (2, 3, 8):
        counts = Counter(value % n_ways for value in found)
        assert min(counts.values()) > 0.8 * len(found) / n_ways
