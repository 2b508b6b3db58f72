"""Pictures of links: every topology, lines as busy as links, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collplan.cli.main import main
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.errors import PlanError
from collplan.reports.networks import plot_network
from collplan.specs import parse_spec

GRAPH = {
    "kind": "graph",
    "hosts": ["a", "b", "c"],
    "links": [{"source": host, "target": "s"} for host in "abc"],
}


def used(topology: dict[str, Any], nodes: int = 3) -> LinkUse:
    machine = {"nodes": nodes, "network": {"topology": topology}}
    collective = {"kind": "alltoall", "count": 100, "datatype": "int32"}
    spec = parse_spec({"machine": machine, "collective": collective, "algorithms": "linear"})
    routes = simulate(compile_plan(spec)).routes
    assert routes is not None
    return LinkUse(routes)


@pytest.mark.many
@pytest.mark.parametrize(
    ("topology", "shown"),
    [
        ({"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}, ("host 2", "switch 1.1")),
        ({"kind": "dragonfly", "groups": 2, "routers": 2, "hosts": 1}, ("switch 1.0", "host 2")),
        (
            {"kind": "dragonfly", "groups": 2, "routers": 2, "hosts": 1, "spines": 2},
            ("spine 1.0", "host 2"),
        ),
        ({"kind": "torus", "dimensions": [2, 2, 2]}, ("host 1", "host 2")),
        (GRAPH, ("a", "s")),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_every_topology_is_drawn(
    topology: dict[str, Any], shown: tuple[str, ...], tmp_path: Path
) -> None:
    plot_network(tmp_path / "net.svg", used(topology), 1e5, "a title")
    text = (tmp_path / "net.svg").read_text()
    for word in (*shown, "a title", "busiest: "):
        assert f">{word}" in text or f"<!-- {word} -->" in text, word
    plot_network(tmp_path / "again.svg", used(topology), 1e5, "a title")
    assert (tmp_path / "again.svg").read_text() == text


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no message goes between nodes"):
        plot_network(tmp_path / "net.svg", used({"kind": "torus", "dimensions": [2]}, 1), 1.0, "")
    given = {**GRAPH, "hosts": ["a", "b"], "links": [{}, {}], "routes": [[None, [0]], [[1], None]]}
    with pytest.raises(PlanError, match="routes are given"):
        plot_network(tmp_path / "net.svg", used(given, 2), 1.0, "")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    text = "machine: {nodes: 4, network: {topology: {kind: fat_tree, down: [2, 2]}}}\n"
    spec.write_text(text + "collective: {kind: bcast, count: 8}\nalgorithms: binomial\n")
    assert main(["draw", str(spec), "--by", "network", "-o", str(tmp_path / "a.svg")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert "binomial bcast" in (tmp_path / "a.svg").read_text()
    spec.write_text("machine: {nodes: 4}\ncollective: {kind: bcast, count: 8}\n")
    assert main(["draw", str(spec), "--by", "network", "-o", str(tmp_path / "b.svg")]) == 2
    assert "has no machine.network.topology; state one" in capsys.readouterr().err
    assert not (tmp_path / "b.svg").exists()
