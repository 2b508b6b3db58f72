"""Topologies in specs: shapes, oversubscription, and one line for each mistake."""

from __future__ import annotations

import re
from typing import Any

import pytest

from collplan.specs import Machine, SpecError, parse_spec
from collplan.specs.topology import Dragonfly, FatTree, Graph, Torus
from collplan.specs.topology.graph import GraphLink


def refuse(topology: Any, nodes: int = 1, **machine: Any) -> str:
    """Return the line that refuses a topology."""
    fields = {"nodes": nodes, "network": {"topology": topology}, **machine}
    with pytest.raises(SpecError) as caught:
        parse_spec({"machine": fields, "collective": {"kind": "barrier"}})
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_oversubscription_leaves_ports_or_rates() -> None:
    assert FatTree(down=[4, 4]).parents == (1, 4)
    assert FatTree(down=[4, 4], oversubscription=2).parents == (1, 2)
    assert FatTree(down=[4, 2, 3], oversubscription=2).parents == (1, 2, 2)
    assert FatTree(down=[4, 4, 3], oversubscription=[2, 4]).parents == (1, 2, 1)
    assert FatTree(down=[8, 4], bandwidth=["100Gbit", "400Gbit"]).parents == (1, 2)
    thick = FatTree(down=[4, 4], up=[1, 1], oversubscription=2, bandwidth="100Gbit")
    assert thick.level_rates(1.0) == (12.5e9, 25e9)
    assert FatTree(down=[4, 4], up=[1, 1], oversubscription=2).level_rates(3.0) == (3.0, 6.0)
    same = FatTree(down=[4, 4], up=[1, 2], oversubscription=2, bandwidth=["1Gbit", "1Gbit"])
    assert same.level_rates(1.0) == (1.25e8, 1.25e8)
    assert FatTree(down=[6]).parents == (1,)


def test_shapes() -> None:
    assert Dragonfly(groups=5, routers=3, hosts=2).n_hosts == 30
    assert Torus(dimensions=[2, 3, 4], wrap=[True, True, False]).is_ring == (False, True, False)
    graph = Graph(hosts=2, links=[{"source": 0, "target": "s"}, {"source": 1, "target": "s"}])
    assert graph.vertices == {"0": 0, "1": 1, "s": 2}


def test_topologies_survive_the_way_through_json() -> None:
    for topology in (
        {"kind": "fat_tree", "down": [4, 4], "oversubscription": 2, "bandwidth": "100Gbit"},
        {"kind": "torus", "dimensions": [4, 4], "bandwidth": ["1Gbit", "2Gbit"]},
        {"kind": "graph", "hosts": ["a", "b"], "links": [{"source": "a", "target": "b"}]},
    ):
        machine = Machine.model_validate({"nodes": 2, "network": {"topology": topology}})
        assert Machine.model_validate(machine.model_dump(mode="json")) == machine
        assert hash(Machine.model_validate_json(machine.model_dump_json())) == hash(machine)


TREE = {"kind": "fat_tree", "down": [4, 4]}
PAIR = {"kind": "graph", "hosts": ["a", "b"]}
LINK = {"source": "a", "target": "b"}


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            {"kind": "fat_tre"},
            "topology.kind: 'fat_tre' is not a topology; did you mean 'fat_tree'",
        ),
        ({"down": [4]}, "topology.kind: is missing; valid: fat_tree, dragonfly, torus, graph"),
        ({"kind": "fat_tree"}, "topology.down: is missing"),
        ({**TREE, "dwon": 1}, "topology.dwon: unknown key; did you mean 'down'"),
        ({"kind": "fat_tree", "down": [4, 0]}, "topology.down.1: 0 is too small; give 1"),
        ({**TREE, "bandwidth": "0bit"}, "topology.bandwidth: '0bit' is out of range; give 1 to"),
        ({**TREE, "bandwidth": 10**10}, "topology.bandwidth: 10000000000 has no unit; give bits"),
        ({**TREE, "bandwidth": "-5bit"}, "topology.bandwidth: '-5bit' is not a rate"),
        ({**TREE, "bandwidth": ["1Gbit", 0]}, "topology.bandwidth: 0 has no unit"),
        (
            {**TREE, "bandwidth": ["1bit"] * 3},
            "bandwidth lists 3 levels of links, the topology has 2",
        ),
        ({**TREE, "latency_ns": [1]}, "latency_ns lists 1 levels of links, the topology has 2"),
        ({**TREE, "latency_ns": -1}, "latency_ns: -1 is not a latency; give 0 to"),
        ({**TREE, "up": [1]}, "up lists 1 levels, down has 2; give 2"),
        ({**TREE, "up": [2, 2]}, r"up begins with 2; a host has 1 link per lane"),
        ({**TREE, "oversubscription": 3}, "oversubscription 3 of 4 links down leaves 1.33333"),
        ({**TREE, "oversubscription": 8}, "oversubscription 8 of 4 links down leaves 0.5"),
        ({**TREE, "oversubscription": 0}, "topology.oversubscription: 0 is not a ratio; give more"),
        (
            {**TREE, "up": [1, 2], "oversubscription": 4, "bandwidth": ["8bit", "8bit"]},
            "up has 2 links from a switch of level 1, oversubscription and bandwidth give 1",
        ),
        ({"kind": "fat_tree", "down": [2048, 2048]}, "has 4194304 hosts; give 1048576 or fewer"),
        (
            {"kind": "dragonfly", "groups": 4, "routers": 4, "hosts": 1, "routing": "ugal"},
            "topology.routing: 'ugal' is not valid; use minimal or valiant",
        ),
        ({"kind": "torus", "dimensions": [4, 4], "wrap": [True]}, "wrap lists 1 dimensions"),
        ({"kind": "torus", "dimensions": [4], "wrap": 1}, "wrap: 1 is not true or false"),
        (
            {"kind": "torus", "dimensions": [4], "group_dimensions": 2},
            "group_dimensions is 2, the torus has 1 dimensions",
        ),
        ({**PAIR, "links": []}, "disconnected: no route from host 'a' to host 'b'"),
        (
            {**PAIR, "links": [{**LINK, "both": False}]},
            "disconnected: no route from host 'b' to host 'a'",
        ),
        ({**PAIR, "links": [{"source": "a"}]}, r"links\[0\] has no ends"),
        ({**PAIR, "links": [{"source": "a", "target": "a"}]}, r"links\[0\] links 'a' to itself"),
        ({**PAIR, "links": [{**LINK, "bandwidth": 5}]}, "links.0.bandwidth: 5 has no unit"),
        (
            {**PAIR, "links": [{**LINK, "bandwidth": "0B"}]},
            "links.0.bandwidth: '0B' is out of range",
        ),
        ({**PAIR, "hosts": ["a", "a"], "links": [LINK]}, "hosts lists 'a' twice"),
        ({**PAIR, "links": [LINK], "groups": [0]}, "groups lists 1 hosts, hosts has 2"),
        (
            {**PAIR, "links": [{}], "routes": [[None, [0]], [None, None]]},
            r"routes\[1\]\[0\]: there is no route from host b to host a",
        ),
        (
            {**PAIR, "links": [{}], "routes": [[None, [0]], [[1], None]]},
            r"routes\[1\]\[0\] is \[1\]; give every link once, of 0 to 0",
        ),
        ({**PAIR, "links": [{}], "routes": [[None]]}, "routes is no table of 2 by 2 hosts"),
    ],
)
def test_mistakes_are_one_line(topology: dict[str, Any], message: str) -> None:
    assert re.search(message, refuse(topology)), refuse(topology)


def test_more_nodes_than_hosts() -> None:
    line = refuse(TREE, nodes=17)
    assert "more nodes than hosts: nodes is 17, network.topology has 16" in line


def test_a_link_has_both_directions_and_no_latency_of_its_own_by_default() -> None:
    link = GraphLink()
    assert (link.both, link.latency_ns, link.bandwidth, link.name) == (True, 0.0, None, None)
