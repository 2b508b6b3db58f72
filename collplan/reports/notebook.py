"""Plans, timelines, costs, comparisons and tuning tables as HTML and SVG for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from collplan.planner.errors import PlanError
from collplan.reports.output import format_bytes, format_seconds

if TYPE_CHECKING:
    from collplan.executors.cost.simulator import Timeline
    from collplan.planner.plan.plan import Plan
    from collplan.select.compared import Comparison
    from collplan.tables.table import TuningTable

MOST_TASKS: Final = 20_000
"""Number of tasks above which a timeline has a row per node and a bar per phase."""


def plan_svg(plan: Plan) -> str | None:
    """Return the graph of a plan; in large plans, a box stands for several tasks.

    Returns
    -------
    str or None
        SVG picture; None if the graph cannot be drawn here.
    """
    from collplan.planner.draw import DrawError, picture
    from collplan.planner.draw.rendering import render

    try:
        return _without_prolog(render(picture(plan), "svg").decode())
    except DrawError:
        return None


def timeline_svg(timeline: Timeline) -> str | None:
    """Return a picture of a timeline with its cores, lanes, messages and critical path.

    If the plan has more than `MOST_TASKS` tasks, the picture is collapsed: it has one row per
    node, and one bar per phase.

    Returns
    -------
    str or None
        SVG picture; None for folded plans and plans of one rank.
    """
    from collplan.reports.collapsed_timeline import plot_collapsed
    from collplan.reports.timelines import Simulated, plot_timelines
    from collplan.specs import Network

    plan = timeline.plan
    network = Network() if plan.machine is None else plan.machine.network
    title = f"{plan.n_tasks:,} tasks, {plan.n_ranks} ranks"
    with TemporaryDirectory() as folder:
        path = Path(folder, "timeline.svg")
        try:
            if plan.n_tasks > MOST_TASKS:
                plot_collapsed(path, timeline, network, title)
            else:
                plot_timelines(path, [Simulated(title, timeline, network)])
        except PlanError:
            return None
        return _without_prolog(path.read_text(encoding="utf-8"))


def cost_html(cost: dict[str, Any]) -> str:
    """Return tables of the parts of the time of a cost report, and of its busiest lanes."""
    total = cost["makespan_ns"]
    title = f"Makespan {format_seconds(cost['makespan_s'])}"
    if cost["bound_s"]:
        title += f", {cost['makespan_s'] / cost['bound_s']:.3g} × the bound"
    parts = sorted(cost["breakdown"].items(), key=lambda part: -part[1])
    time = [(kind, format_seconds(ns / 1e9), f"{ns / total:.1%}") for kind, ns in parts if ns > 0]
    lanes = [lane for lane in cost["lanes"] if lane["utilisation"] > 0]
    busy = [(f"lane {one['lane']} of node {one['node']}", f"{one['utilisation']:.0%}") for one in
            sorted(lanes, key=lambda one: -one["utilisation"])[:4]]  # fmt: skip
    found = _table(("time goes to", "", "of the makespan"), time, title)
    return found + (_table(("busiest lanes", "busy"), busy) if busy else "")


def comparison_html(comparison: Comparison) -> str:
    """Return a table of the best candidates by size, and sentences on the winners."""
    from collplan.reports.comparison import comparison_table
    from collplan.reports.words import winners

    columns, rows, _ = comparison_table(comparison, is_all=False)
    lines = "".join(f"<p>{escape(line)}</p>" for line in winners(comparison))
    return _table(columns, rows) + lines


def table_html(table: TuningTable) -> str:
    """Return a table of the winners of a tuning table by collective, placement and size."""
    from collplan.reports.tuning import speedup_of

    rows = [
        (
            sweep.name,
            str(sweep.placement),
            format_bytes(point.bytes),
            point.winner,
            f"{speedup_of(point).factor:.2f}",
        )
        for sweep in table.sweeps
        for point in sweep.points
    ]
    title = f"{table.fingerprint.mpi}, {table.fingerprint.cpu}"
    columns = ("collective", "placement", "size", "winner", "times faster than native")
    return _table(columns, rows, title)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _without_prolog(svg: str) -> str:
    """Return an SVG picture without prolog, so that it can be part of a page."""
    return svg[svg.index("<svg") :]
