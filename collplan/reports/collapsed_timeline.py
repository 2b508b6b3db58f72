"""Pictures of timelines of large plans, with a row per node and a bar per phase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.executors.cost.critical_path import Leg, legs
from collplan.executors.cost.simulator import Timeline
from collplan.planner.arrays import Floats, Ints
from collplan.planner.plan.plan import Op, Plan
from collplan.reports.output import format_seconds
from collplan.reports.plots import new_figure
from collplan.reports.timelines import CRITICAL, finish_axes, require_all_ranks
from collplan.specs import Network

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NODES: Final = 48
"""Largest number of nodes in a picture: those with the most tasks of the critical path."""
_MOST_NAMES: Final = 8
"""Largest number of phases with a color and a name of their own."""
_OTHERS: Final = "#c4cbd4"
_WIDTH_INCHES: Final = 10.0
_ROW_INCHES: Final = 0.2
_MARGIN_INCHES: Final = 1.3


def plot_collapsed(path: Path, timeline: Timeline, network: Network, title: str) -> None:
    """Draw a timeline with one row per node, in which a bar is the time of a phase on the node.

    A red line leads along the critical path.

    Parameters
    ----------
    path : Path
        SVG, PNG or PDF file to write.
    timeline : Timeline
        Timeline of a plan of all ranks.
    network : Network
        Network on which it was simulated.
    title : str
        Text above the picture.

    Raises
    ------
    PlanError
        If the plan is folded or holds only one rank's program.
    """
    plan = timeline.plan
    require_all_ranks(plan)
    path_of_tasks = legs(timeline, network)
    nodes = _nodes_to_draw(plan, np.array([leg.row for leg in path_of_tasks], dtype=np.int64))
    inches = _ROW_INCHES * max(2, len(nodes)) + _MARGIN_INCHES
    with new_figure(path, (_WIDTH_INCHES, inches)) as figure:
        axes = figure.subplots()
        row_of = np.full(plan.n_nodes, -1)
        row_of[nodes] = np.arange(len(nodes))
        _add_phases(axes, timeline, row_of)
        _add_critical_path(axes, plan, path_of_tasks, row_of)
        axes.set_ylim(max(1.5, len(nodes) - 0.5), -0.5)
        axes.set_yticks(range(len(nodes)), [f"node {node}" for node in nodes], fontsize=7)
        of = "" if len(nodes) == plan.n_nodes else f", {len(nodes)} of {plan.n_nodes} nodes"
        text = f"{title}: {format_seconds(timeline.makespan_s)}, a bar per phase and node{of}"
        axes.set_title(text, fontsize=10, loc="left")
        finish_axes([axes], timeline.makespan_ns)


def _nodes_to_draw(plan: Plan, critical: Ints) -> list[int]:
    n_visits = np.bincount(plan.node[critical], minlength=plan.n_nodes)
    found: list[int] = np.sort(np.argsort(-n_visits, kind="stable")[:MOST_NODES]).tolist()
    return found


def spans_of(timeline: Timeline) -> tuple[Floats, Floats]:
    """Return when each phase begins and ends on each node in ns, NaN without tasks.

    Returns
    -------
    begin, end : ndarray of float64, shape (n_nodes, n_phases)
    """
    plan = timeline.plan
    shape = plan.n_nodes, len(plan.phases)
    begin, end = np.full(shape, np.inf), np.full(shape, -np.inf)
    # Receives start when they are posted, which may be long before their phase.
    is_done = plan.op != Op.RECV
    places = plan.node[is_done], plan.phase[is_done]
    np.minimum.at(begin, places, timeline.start_ns[is_done])
    np.minimum.at(begin, (plan.node, plan.phase), timeline.end_ns)
    np.maximum.at(end, (plan.node, plan.phase), timeline.end_ns)
    is_empty = np.isinf(begin)
    begin[is_empty] = end[is_empty] = np.nan
    return begin, end


def _add_phases(axes: Axes, timeline: Timeline, row_of: Ints) -> None:
    """Add a bar for each phase and node; the phases with the most tasks have colors and names."""
    from matplotlib import colormaps

    plan = timeline.plan
    begin, end = spans_of(timeline)
    order = np.argsort(-np.bincount(plan.phase, minlength=len(plan.phases)), kind="stable")
    colors = colormaps["tab10"].colors  # type: ignore[attr-defined]
    shown = np.flatnonzero(row_of >= 0)
    for place, phase in enumerate(order.tolist()):
        is_named = place < _MOST_NAMES
        used = shown[~np.isnan(begin[shown, phase])]
        if not len(used):
            continue
        label = plan.phases[phase].name if is_named else "other phases"
        axes.barh(
            row_of[used], (end - begin)[used, phase], 0.72, begin[used, phase], label=label,
            color=colors[place] if is_named else _OTHERS, alpha=0.55, linewidth=0, zorder=2,
        )  # fmt: skip


def _add_critical_path(axes: Axes, plan: Plan, path: Sequence[Leg], row_of: Ints) -> None:
    """Add a line over the rows of the nodes on which the tasks of the critical path are."""
    points = [
        (time_ns, row_of[plan.node[leg.row]])
        for leg in path
        if row_of[plan.node[leg.row]] >= 0
        for time_ns in (leg.begin_ns, leg.end_ns)
    ]
    axes.plot(
        *np.array(points).reshape(-1, 2).T, color=CRITICAL, linewidth=1.0, zorder=4,
        label="critical path",
    )  # fmt: skip
