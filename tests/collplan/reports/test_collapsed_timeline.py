"""Collapsed pictures of timelines: a row per node, a bar per phase."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import PlanError
from collplan.reports import collapsed_timeline
from collplan.reports.collapsed_timeline import plot_collapsed, spans_of
from collplan.specs import Network, PlanSpec, parse_spec


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


def test_folded_plans_are_refused(tmp_path: Path) -> None:
    timeline = simulate(compile_folded(full_lane(4)))
    with pytest.raises(PlanError, match="the plan is folded"):
        plot_collapsed(tmp_path / "timeline.svg", timeline, Network(), "folded")
