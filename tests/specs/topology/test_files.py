"""Graphs and Slurm's topology.conf from files beside a spec."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import networkx
import pytest

from collplan.specs import SpecError, load_spec
from collplan.specs.topology import Graph
from collplan.specs.topology.files import read_graph

SPEC = """
machine:
  nodes: {nodes}
  network: {{topology: {{kind: graph, file: {file}, latency_ns: 5}}}}
collective: {{kind: barrier}}
"""


def two_switches() -> networkx.Graph:
    graph = networkx.Graph()
    for i in range(4):
        graph.add_edge(f"h{i}", f"s{i // 2}", bandwidth="100Gbit", latency_ns=100.0)
    graph.add_edge("s0", "s1", bandwidth_B_per_s=25e9, latency_s=4e-7)
    graph.nodes["s0"]["group"], graph.nodes["s1"]["group"] = "left", "right"
    return graph


def loaded(tmp_path: Path, file: str, nodes: int = 4) -> Graph:
    (tmp_path / "spec.yaml").write_text(SPEC.format(file=file, nodes=nodes))
    topology = load_spec(tmp_path / "spec.yaml").machine.network.topology
    assert isinstance(topology, Graph)
    return topology


def test_networkx_graphs(tmp_path: Path) -> None:
    graph = two_switches()
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    document = networkx.node_link_data(graph, edges="links")
    (tmp_path / "net.json").write_text(json.dumps(document))
    first, second = loaded(tmp_path, "net.graphml"), loaded(tmp_path, "net.json")
    assert first == second
    assert first.hosts == ("h0", "h1", "h2", "h3")
    assert first.groups == (0, 0, 1, 1)
    assert [link.bandwidth for link in first.links].count(200 * 10**9) == 1
    assert sorted(link.latency_ns for link in first.links) == [100, 100, 100, 100, 400]
    directed = networkx.node_link_data(graph.to_directed(), edges="edges")
    (tmp_path / "net.json").write_text(json.dumps(directed))
    third = loaded(tmp_path, "net.json")
    assert len(third.links) == 10
    assert not any(link.both for link in third.links)


def test_hosts_may_be_named(tmp_path: Path) -> None:
    graph = two_switches()
    for name in ("h0", "h3"):
        graph.nodes[name]["kind"] = "host"
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    assert loaded(tmp_path, "net.graphml", nodes=2).hosts == ("h0", "h3")
    ring = networkx.cycle_graph(4)
    networkx.write_graphml(ring, tmp_path / "net.graphml")
    assert loaded(tmp_path, "net.graphml").hosts == ("0", "1", "2", "3")


def test_a_platform_has_routes(tmp_path: Path) -> None:
    links = [{"name": f"l{i}", "bandwidth_B_per_s": 1e9, "latency_s": 1e-6} for i in range(2)]
    platform = {"hosts": 2, "links": links, "routes": [[None, [0]], [[1], None]]}
    (tmp_path / "net.json").write_text(json.dumps(platform))
    found = loaded(tmp_path, "net.json", nodes=2)
    assert found.routes == ((None, (0,)), ((1,), None))
    assert [link.bandwidth for link in found.links] == [8 * 10**9] * 2
    assert [link.latency_ns for link in found.links] == [1000.0] * 2


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "is not a mapping"),
        ({"nodes": []}, "has neither nodes and links nor routes"),
        ({"nodes": [{}], "links": []}, "a node has no id"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1}]}, "a link no source and target"),
        ({"hosts": 1, "links": 5, "routes": []}, "links is no list of links"),
        (
            {"nodes": [], "links": [{"source": 1, "target": 2, "bandwidth_B_per_s": -1}]},
            "bandwidth_B_per_s -1 is not a bandwidth; give more than 0 and at most ",
        ),
        (
            {"nodes": [], "links": [{"source": 1, "target": 2, "latency_s": -1}]},
            "latency_s -1 is not a latency",
        ),
        ({"hosts": 2, "links": [], "routes": [[None, None], [None, None]]}, "there is no route"),
    ],
)
def test_files_that_are_no_graph(tmp_path: Path, document: Any, message: str) -> None:
    (tmp_path / "net.json").write_text(json.dumps(document))
    with pytest.raises(SpecError, match=message) as caught:
        loaded(tmp_path, "net.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [("bandwidth_B_per_s", "bandwidth", 8), ("latency_s", "latency_ns", 1e9)],
)
def test_the_limits_that_errors_name_are_allowed(
    tmp_path: Path, name: str, field: str, unit: float
) -> None:
    def costs_of(value: float) -> float:
        graph = networkx.Graph()
        graph.add_edge("a", "b", **{name: value})
        document = networkx.node_link_data(graph, edges="links")
        (tmp_path / "net.json").write_text(json.dumps(document))
        return float(getattr(loaded(tmp_path, "net.json", 2).links[0], field))

    with pytest.raises(SpecError, match=f"{name} 1e\\+300 is not a") as refused:
        costs_of(1e300)
    most = int(re.findall(r"\d+", str(refused.value))[-1])
    assert costs_of(most) == pytest.approx(most * unit)
    with pytest.raises(SpecError, match=f"{name} {most + 1} is not a"):
        costs_of(most + 1)
    with pytest.raises(SpecError, match=f"{name} -1 is not a"):
        costs_of(-1)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "net.graphml").write_text("<graphml")
    with pytest.raises(SpecError, match="is no GraphML that can be read"):
        read_graph(tmp_path / "net.graphml")
    with pytest.raises(SpecError, match="no such file"):
        loaded(tmp_path, "none.json")
    with pytest.raises(SpecError, match=r"topology.file: 7 is not a file"):
        loaded(tmp_path, "7")
    networkx.write_graphml(networkx.Graph(), tmp_path / "empty.graphml")
    with pytest.raises(SpecError, match="has no nodes"):
        read_graph(tmp_path / "empty.graphml")
    (tmp_path / "net.graphml").unlink()
    os.mkfifo(tmp_path / "net.graphml")
    with pytest.raises(SpecError, match="is a FIFO"):
        read_graph(tmp_path / "net.graphml")


def test_graphs_of_many_hosts_are_read_link_by_link(tmp_path: Path) -> None:
    n = 30_000
    nodes = [{"id": f"h{i}", "kind": "host", "group": i % 7} for i in range(n)]
    links = [{"source": f"h{i}", "target": f"s{i % 9}"} for i in range(n)]
    document = {"nodes": [*nodes, *({"id": f"s{i}"} for i in range(9))], "links": links}
    (tmp_path / "net.json").write_text(json.dumps(document))
    graph = read_graph(tmp_path / "net.json")
    assert len(graph["hosts"]) == n
    assert graph["groups"][:9] == [0, 1, 2, 3, 4, 5, 6, 0, 1]
