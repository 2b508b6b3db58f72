"""Pictures of timelines: what is drawn, of what machines, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import collplan
from collplan.executors.cost.traces.layers import simulated_layer, tracks_of
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.draw.style import OP_LOOKS
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Op, Plan
from collplan.reports.timelines import (
    CRITICAL,
    MOST_MESSAGES,
    Simulated,
    choose_rows,
    mark_critical,
    plot_timelines,
    thickness,
)
from collplan.specs.errors import CollplanError
from drawn_figures import boxes_of, fill_of, in_order, keep_figures
from oracle import make_spec

SMALL = {"nodes": 2, "ranks_per_node": 2, "lanes": 2}


def drawn(path: Path, *plans: Plan) -> str:
    shown = []
    for i, plan in enumerate(plans):
        assert plan.spec is not None
        shown.append(Simulated(f"plan {i}", collplan.simulate(plan), plan.spec.machine.network))
    plot_timelines(path, shown)
    return path.read_text() if path.suffix == ".svg" else ""


def words_of(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_ranks_and_lanes_have_rows(tmp_path: Path) -> None:
    plan = compile_plan(make_spec("allreduce", "ring", 0, SMALL, count=1000))
    words = words_of(drawn(tmp_path / "ring.svg", plan))
    assert [f"rank {rank}" in words for rank in range(5)] == [True] * 4 + [False]
    assert {"node 0 lane 0 out", "node 1 lane 0 in", "critical path", "reduce"} <= set(words)
    makespan_us = collplan.simulate(plan).makespan_ns / 1e3
    (title,) = (word for word in words if word.startswith("plan 0: "))
    assert float(title.split()[2]) == pytest.approx(makespan_us, rel=0.01)


def test_two_plans_share_an_axis(tmp_path: Path) -> None:
    plans = [
        compile_plan(make_spec("bcast", name, 0, SMALL, count=1000)) for name in ("chain", "linear")
    ]
    words = words_of(drawn(tmp_path / "both.svg", *plans))
    assert sum(word.startswith("plan ") for word in words) == 2
    assert words.count("rank 3") == 2
    ticks = [word for word in words if re.fullmatch(r"[\d.]+ [nµm]s", word)]
    assert len(ticks) == len(set(ticks)) >= 3


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return keep_figures(monkeypatch)


def row_labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_bars_are_the_slices_of_ranks_and_lanes(figures: list[Figure], tmp_path: Path) -> None:
    """A bar has the color of its operation, and a red border if it is critical."""
    plan = compile_plan(make_spec("allreduce", "ring", 0, SMALL, count=1000))
    assert plan.spec is not None
    drawn(tmp_path / "ring.png", plan)
    (axes,) = figures[0].axes
    labels = row_labels(axes)
    assert labels[:2] == ["rank 0", "rank 1"]
    timeline = collplan.simulate(plan)
    tracks = tracks_of(simulated_layer(timeline, plan.spec.machine.network))
    slices: dict[object, list[list[float]]] = {}
    for track, task, begin, end in zip(
        tracks.track, tracks.row, tracks.begin, tracks.end, strict=True
    ):
        is_lane = tracks.is_lane[track]
        name = tracks.names[track]
        row = labels.index(
            f"node {tracks.node[track]} {name}" if is_lane else f"rank {plan.rank[task]}"
        )
        box = [begin, row - 0.36, end, row + 0.36]
        slices.setdefault("lane" if is_lane else Op(plan.op[task]), []).append(box)
        if mark_critical(timeline)[task] and not is_lane:
            slices.setdefault("critical", []).append(box)
    bars = [one for one in axes.collections if isinstance(one, PolyCollection)]
    found = {one.get_label(): one for one in bars}
    assert len(found) == len(bars) == len(slices)
    for name, boxes in slices.items():
        label = {"lane": bars[0].get_label(), "critical": "critical path"}.get(str(name))
        one = found[label or Op(name).name.lower()]
        assert np.allclose(in_order(boxes_of([one])), in_order(np.array(boxes)))
        if label is None:
            assert fill_of(one) == OP_LOOKS[Op(name)]["fillcolor"]


def test_a_line_leads_from_each_send_to_its_receive(figures: list[Figure], tmp_path: Path) -> None:
    plan = compile_plan(make_spec("bcast", "linear", 0, SMALL, count=1000))
    drawn(tmp_path / "bcast.png", plan)
    (axes,) = figures[0].axes
    red, grey = (one for one in axes.collections if isinstance(one, LineCollection))
    assert to_hex(red.get_colors()[0]) == CRITICAL
    root, lines = row_labels(axes).index("rank 0"), [*red.get_segments(), *grey.get_segments()]
    assert len(lines) == 3
    assert {line[0][1] for line in lines} == {root}
    assert {row_labels(axes)[int(line[1][1])] for line in lines} == {"rank 1", "rank 2", "rank 3"}
    timeline = collplan.simulate(plan)
    sends, recvs = (np.flatnonzero(plan.op == op) for op in (Op.SEND, Op.RECV))
    assert all(line[0][0] in np.rint(timeline.end_ns[sends]) for line in lines)
    assert all(line[1][0] in np.rint(timeline.arrival_ns[recvs]) for line in lines)
    # The message that arrives last is the critical one.
    (line,) = red.get_segments()
    last = int(plan.rank[recvs[timeline.arrival_ns[recvs].argmax()]])
    assert row_labels(axes)[int(line[1][1])] == f"rank {last}"


def test_axes_show_all_times_and_rows_and_name_each_color_once(
    figures: list[Figure], tmp_path: Path
) -> None:
    plans = [
        compile_plan(make_spec("bcast", name, 0, SMALL, count=1000)) for name in ("chain", "linear")
    ]
    drawn(tmp_path / "both.png", *plans)
    makespan_ns = max(collplan.simulate(plan).makespan_ns for plan in plans)
    for axes in figures[0].axes:
        left, right = axes.get_xlim()
        assert left == 0
        assert makespan_ns <= right < 1.1 * makespan_ns
        bottom, top = axes.get_ylim()
        assert top == -0.5
        assert bottom == len(row_labels(axes)) - 0.5
        shown = {side: spine.get_visible() for side, spine in axes.spines.items()}
        assert shown == {"left": True, "bottom": True, "right": False, "top": False}
    (legend,) = figures[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == ["critical path", "lane", "message", "recv", "send"]
    assert figures[0].axes[1].xaxis.get_major_formatter()(1500, 0) == "1.5 µs"


def test_a_machine_too_large_shows_nodes_with_most_of_the_critical_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = compile_plan(make_spec("bcast", "chain", 0, {"nodes": 6, "ranks_per_node": 2}, count=10))
    assert plan.spec is not None
    timeline = collplan.simulate(plan)
    tracks = tracks_of(simulated_layer(timeline, plan.spec.machine.network))
    marks = np.isin(plan.node, (1, 4))
    per_node = np.bincount(np.array(tracks.node)[np.unique(tracks.track)])
    whole = choose_rows(plan, tracks, marks)
    assert (whole.n_nodes, len(whole.labels)) == (6, per_node.sum())
    for room in (per_node[1] + per_node[4], per_node[1] + per_node[4] + per_node[0] - 1):
        monkeypatch.setattr("collplan.reports.timelines.MOST_TRACKS", int(room))
        rows = choose_rows(plan, tracks, marks)
        assert rows.n_nodes == 2
        shown = [track for track, row in enumerate(rows.row_of) if row >= 0]
        assert {tracks.node[track] for track in shown} == {1, 4}
        assert rows.labels[0] == "rank 2"
        assert sorted(rows.row_of[shown]) == list(range(len(rows.labels)))
    monkeypatch.setattr("collplan.reports.timelines.MOST_TRACKS", 1)
    assert choose_rows(plan, tracks, marks).n_nodes == 1


@pytest.mark.long
def test_the_nodes_of_the_critical_path_are_drawn_of_a_large_machine(tmp_path: Path) -> None:
    machine = {"nodes": 14, "ranks_per_node": 8}
    plan = compile_plan(make_spec("allgather", "ring", 0, machine, count=10))
    svg = drawn(tmp_path / "large.svg", plan)
    ranks = [word for word in words_of(svg) if word.startswith("rank ")]
    assert 8 <= len(ranks) <= 96
    assert len(ranks) % 8 == 0
    assert re.search(r"plan 0: .*, \d+ of 14 nodes", svg)
    assert plan.n_tasks > 2 * MOST_MESSAGES
    assert len(svg) < 40_000_000


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_other_files_and_few_ranks(n_ranks: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plot{suffix}"
    drawn(path, compile_plan(make_spec("scan", "chain", n_ranks, count=7)))
    assert path.read_bytes().startswith(b"%PDF" if suffix == ".pdf" else b"\x89PNG")


def test_parts_of_plans_are_refused(tmp_path: Path) -> None:
    spec = make_spec("allgather", "ring", 0, {"nodes": 4, "ranks_per_node": 2}, count=8)
    with pytest.raises(PlanError, match="folded; unfold it"):
        drawn(tmp_path / "folded.svg", compile_folded(spec))
    timeline = collplan.simulate(compile_plan(spec))
    shown = [Simulated("ring", timeline, spec.machine.network)]
    with pytest.raises(CollplanError, match="plots are written as"):
        plot_timelines(tmp_path / "plot.eps", shown)


def test_a_dense_critical_path_is_thinner() -> None:
    assert thickness(1) == thickness(50) == 1.0
    assert thickness(1) > thickness(100) > thickness(10_000) > 0
    assert thickness(10**6) == thickness(10**9)
