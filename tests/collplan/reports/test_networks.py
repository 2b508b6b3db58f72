"""Pictures of links: every topology, lines as busy as links, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from collplan.cli.main import main
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import simulate
from collplan.planner.arrays import Floats
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.errors import PlanError
from collplan.reports.networks import plot_network
from collplan.specs import parse_spec
from drawn_figures import keep_figures

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


def drawn(
    topology: dict[str, Any], nodes: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Floats], LineCollection]:
    """Return the places of hosts and switches by their names, and the lines."""
    figures = keep_figures(monkeypatch)
    use = used(topology, nodes)
    makespan_ns = 2 * float(use.busy_ns.max())
    plot_network(path, use, makespan_ns, "a title")
    axes = figures[0].axes[0]
    texts = [one for one in axes.texts if not one.get_text().startswith("busiest")]
    (lines,) = (one for one in axes.collections if isinstance(one, LineCollection))
    return {one.get_text(): np.array(one.xy) for one in texts}, lines  # type: ignore[attr-defined]


def test_dimensions_of_a_torus_go_across_and_up_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planes of the third dimension lie beside each other, and hosts of none coincide."""
    torus = {"kind": "torus", "dimensions": [3, 2, 2, 2]}
    places, _ = drawn(torus, 24, tmp_path / "net.png", monkeypatch)
    assert len(places) == 24
    for name, place in places.items():
        host = int(name.split()[-1])
        x, y, z, w = host % 3, host // 3 % 2, host // 6 % 2, host // 12
        assert place == pytest.approx((x + 3.5 * z, y + 2.5 * w)), name


def test_switches_of_a_fat_tree_lie_above_their_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}
    places, _ = drawn(tree, 4, tmp_path / "net.png", monkeypatch)
    hosts = [places[f"host {host}"] for host in range(4)]
    assert [one[1] for one in hosts] == [0] * 4
    assert [one[0] for one in hosts] == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8])
    levels = {name: place[1] for name, place in places.items() if name.startswith("switch ")}
    assert levels == {name: float(name.split()[1].split(".")[0]) for name in levels}
    assert places["switch 1.0"][0] == pytest.approx((hosts[0][0] + hosts[1][0]) / 2)


def test_groups_lie_on_a_circle_and_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dragonfly = {"kind": "dragonfly", "groups": 5, "routers": 2, "hosts": 1}
    places, _ = drawn(dragonfly, 10, tmp_path / "net.png", monkeypatch)
    groups: dict[int, list[Floats]] = {}
    for name, place in places.items():
        number = name.split()[1]
        group = int(number.split(".")[0]) if "." in number else int(number) // 2
        groups.setdefault(group, []).append(place)
    centers = np.array([np.mean(groups[number], axis=0) for number in range(5)])
    assert np.hypot(*centers.T) == pytest.approx([1] * 5)
    angles = np.unwrap(np.arctan2(*centers.T))
    assert np.diff(angles) == pytest.approx([2 * np.pi / 5] * 4)
    for number, members in groups.items():
        inner = np.hypot(*(np.array(members) - centers[number]).T)
        assert len(members) == 4
        assert inner == pytest.approx([inner[0]] * 4)
        # Two circles of neighbors would meet at half of the distance of their centers.
        assert 0.5 < 2 * inner[0] / np.hypot(*(centers[0] - centers[1])) < 1


def test_lines_are_as_wide_as_links_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages to a leaf pass one link, and the links of the tree's top are busier."""
    tree = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}
    _, lines = drawn(tree, 4, tmp_path / "net.png", monkeypatch)
    parts = np.array(lines.get_array())
    # The makespan is twice the time of the busiest link.
    assert parts.max() == pytest.approx(0.5)
    assert (np.diff(parts) >= 0).all()
    widths = np.array(lines.get_linewidths())
    assert widths == pytest.approx(0.4 + 4.6 * parts / 0.5)
    assert lines.get_clim() == pytest.approx((0, 0.5))
    # Of 3 messages that a host sends, 2 leave its switch; so do those of its neighbor.
    assert sorted(set(np.round(parts, 6))) == pytest.approx([0.5 * 3 / 4, 0.5])


def test_names_are_left_out_where_there_are_more_than_80(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n_hosts, n_names in ((80, 80), (81, 0)):
        ring = {"kind": "torus", "dimensions": [n_hosts]}
        places, _ = drawn(ring, n_hosts, tmp_path / "net.png", monkeypatch)
        assert len(places) == n_names


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
