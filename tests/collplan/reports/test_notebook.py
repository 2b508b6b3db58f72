"""Objects in notebooks: short to print, and pictures or tables to look at."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from collplan.executors.cost import cost_report, simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.draw import DrawError
from collplan.reports import notebook
from collplan.select.comparison import compare
from collplan.specs import PlanSpec
from export_tables import sweep, table


def spec(nodes: int = 2, algorithms: str = "ring", count: int = 64) -> PlanSpec:
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": nodes, "ranks_per_node": 2, "lanes": 2},
            "collective": {"kind": "allreduce", "count": count, "datatype": "int32"},
            "algorithms": algorithms,
        }
    )


def texts(svg: str | None) -> str:
    assert svg is not None
    return " ".join(ElementTree.fromstring(svg).itertext())


def test_small_plans_are_graphs_and_large_ones_collapse() -> None:
    small, large = compile_plan(spec()), compile_plan(spec(nodes=40))
    assert repr(small) == "<Plan: 60 tasks; ranks 4, nodes 2>"
    assert "reduce" in texts(small._repr_svg_())
    assert large.n_tasks > 10_000
    assert len(large._repr_svg_() or "") < 2_000_000


def test_without_a_renderer_there_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise DrawError("svg: neither is here")

    monkeypatch.setattr("collplan.planner.draw.rendering.render", fail)
    assert compile_plan(spec())._repr_svg_() is None


def test_timelines_are_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = simulate(compile_plan(spec()))
    assert repr(timeline).startswith("<Timeline: 60 tasks in ")
    ElementTree.fromstring(timeline._repr_svg_() or "")
    monkeypatch.setattr(notebook, "MOST_TASKS", 59)
    assert "a bar per phase and node" in texts(timeline._repr_svg_())
    monkeypatch.undo()
    assert simulate(compile_folded(spec(nodes=4)))._repr_svg_() is None


def test_costs_are_tables_without_rows_of_zeros() -> None:
    plan = compile_plan(spec(algorithms="recursive_doubling"))
    cost = cost_report(plan, simulate(plan))
    assert len(repr(cost)) < 80
    html = cost._repr_html_()
    assert "Makespan" in html
    assert "busiest lanes" in html
    assert "<td>0 ns</td>" not in html
    assert json.loads(json.dumps(cost))["n_tasks"] == plan.n_tasks


def test_comparisons_are_tables_and_sentences() -> None:
    comparison = compare([spec(count=n) for n in (16, 4096)], patterns=["ring", "flat"])
    assert len(repr(comparison)) < 80
    html = comparison._repr_html_()
    assert '<th scope="col">candidate</th>' in html
    assert " wins at " in html
    assert html.count("<p>") == len(set(comparison.leading.values()))


def test_tables_show_winners_and_escape_names() -> None:
    found = table(sweep("bcast", {64: {"native": 10.0, "binomial": 5.0}}), mpi="<b>MPI</b>")
    assert repr(found) == "<TuningTable: 1 sweeps, 1 points>"
    html = found._repr_html_()
    assert "<td>binomial</td><td>2.00</td>" in html
    assert "&lt;b&gt;MPI" in html
    assert "<b>" not in html
