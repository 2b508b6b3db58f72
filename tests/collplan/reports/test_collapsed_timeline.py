"""Collapsed pictures of timelines: a row per node, a bar per phase."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.executors.cost.critical_path import legs
from collplan.planner import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Op
from collplan.reports import collapsed_timeline
from collplan.reports.collapsed_timeline import plot_collapsed, spans_of
from collplan.specs import Network, PlanSpec, parse_spec
from drawn_figures import keep_figures


def full_lane(nodes: int) -> PlanSpec:
    return parse_spec(
        {
            "machine": {"nodes": nodes, "ranks_per_node": 2},
            "collective": {"kind": "allreduce", "count": 64},
            "decomposition": "full_lane",
        }
    )


def test_phases_span_their_tasks_on_each_node() -> None:
    timeline = simulate(compile_plan(full_lane(3)))
    begin, end = spans_of(timeline)
    assert begin.shape == end.shape == (3, len(timeline.plan.phases))
    assert np.nanmax(end) == timeline.makespan_ns
    assert (np.nanmin(begin, axis=1) == 0).all()
    first = [phase.name.split()[0] for phase in timeline.plan.phases].index("lane")
    assert (begin[:, first] > 0).all()  # its receives are posted earlier


def test_a_picture_has_a_row_per_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = simulate(compile_plan(full_lane(3)))
    path = tmp_path / "timeline.svg"
    plot_collapsed(path, timeline, Network(), "small")
    text = " ".join(ElementTree.parse(path).getroot().itertext())
    assert "node 2" in text
    assert "critical path" in text
    monkeypatch.setattr(collapsed_timeline, "MOST_NODES", 2)
    plot_collapsed(path, timeline, Network(), "small")
    assert "2 of 3 nodes" in " ".join(ElementTree.parse(path).getroot().itertext())


def test_bars_are_phases_and_the_line_is_the_critical_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of the nodes has several ranks, and so a phase inside of it."""
    machine = {"nodes": 3, "ranks_per_node": [1, 3, 1]}
    document = {
        "machine": machine,
        "collective": {"kind": "allreduce", "count": 64},
        "decomposition": "hierarchical",
    }
    plan = compile_plan(parse_spec(document))
    timeline, figures = simulate(plan), keep_figures(monkeypatch)
    network = parse_spec(document).machine.network
    plot_collapsed(tmp_path / "timeline.png", timeline, network, "small")
    (axes,) = figures[0].axes
    found: dict[str, list[tuple[float, ...]]] = {}
    for container in axes.containers:
        for bar in container:
            box = bar.get_bbox()
            found.setdefault(str(container.get_label()), []).append(
                (round(float(box.y0 + box.y1) / 2), float(box.x0), float(box.x1))
            )
            assert 0.5 < box.height < 1
    assert set(found) == {phase.name for phase in plan.phases}
    for number, phase in enumerate(plan.phases):
        for node, begin, end in found[phase.name]:
            own = (plan.phase == number) & (plan.node == node)
            sends = own & (plan.op != Op.RECV)
            assert end == pytest.approx(timeline.end_ns[own].max())
            assert begin == pytest.approx(
                min(timeline.start_ns[sends].min(initial=np.inf), timeline.end_ns[own].min())
            )
        assert {bar[0] for bar in found[phase.name]} == set(
            plan.node[plan.phase == number].tolist()
        )
    (line,) = (one for one in axes.lines if one.get_label() == "critical path")
    path = legs(timeline, network)
    assert line.get_xdata() == pytest.approx(
        [time for leg in path for time in (leg.begin_ns, leg.end_ns)]
    )
    assert list(line.get_ydata()) == [plan.node[leg.row] for leg in path for _ in range(2)]
    assert axes.get_ylim() == (2.5, -0.5)


def test_phases_that_a_node_does_not_have_take_no_time_there() -> None:
    machine = {"nodes": 2, "ranks_per_node": [1, 2]}
    collective = {"kind": "bcast", "count": 64}
    plan = compile_plan(
        parse_spec({"machine": machine, "collective": collective, "decomposition": "hierarchical"})
    )
    begin, end = spans_of(simulate(plan))
    assert np.isnan(begin).any()
    assert (np.isnan(begin) == np.isnan(end)).all()
    has_tasks = np.zeros(begin.shape, dtype=np.bool_)
    has_tasks[plan.node, plan.phase] = True
    assert (np.isnan(begin) == ~has_tasks).all()


def test_folded_plans_are_refused(tmp_path: Path) -> None:
    timeline = simulate(compile_folded(full_lane(4)))
    with pytest.raises(PlanError, match="the plan is folded"):
        plot_collapsed(tmp_path / "timeline.svg", timeline, Network(), "folded")
