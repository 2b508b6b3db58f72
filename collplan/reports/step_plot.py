"""Picture of the steps of a program: a row for each step, with a line for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.executors.cost.critical_path import legs
from collplan.executors.cost.simulator import Timeline
from collplan.planner.draw.style import OP_LOOKS
from collplan.planner.plan.plan import Op
from collplan.planner.programs.compose import StepRows, step_rows
from collplan.reports.output import format_seconds
from collplan.reports.plots import new_figure
from collplan.specs import Network

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES: Final = 64
"""Largest number of ranks that have a line of their own in each row."""
_CRITICAL: Final = "#c8102e"
_PATH: Final = 0.1
_ROW: Final = 0.8
"""Height of a row of lines as a fraction of the distance between rows."""
_WIDTH_INCHES: Final = 10.0
_ROW_INCHES: Final = 0.28
_MARGIN_INCHES: Final = 1.2


def plot_steps(path: Path, timeline: Timeline, network: Network, title: str) -> None:
    """Draw when each rank is in each step, and the critical path.

    A rank is in a step from the start of its first task that is no receive to the end of its last
    task. For more than `MOST_LINES` ranks, as many of them are drawn, from the first to the last.

    Parameters
    ----------
    path : Path
        SVG, PNG or PDF file to write.
    timeline : Timeline
        Simulation of a program's plan.
    network : Network
        Network on which it was simulated.
    title : str
        Title of the picture.

    Raises
    ------
    CollplanError
        If the path is not valid for a plot.
    """
    plan = timeline.plan
    program = plan.program
    assert program is not None
    rows = step_rows(plan)
    size = (_WIDTH_INCHES, _ROW_INCHES * len(rows) + _MARGIN_INCHES)
    with new_figure(path, size) as figure:
        axes = figure.subplots()
        for place, one in enumerate(rows):
            is_compute = program.steps[one.number].compute is not None
            color = OP_LOOKS[Op.COMPUTE if is_compute else Op.SEND]["color"]
            _add_lines(axes, timeline, one, place, color)
        firsts = [one.first for one in rows]
        for leg in legs(timeline, network):
            place = int(np.searchsorted(firsts, leg.row, side="right")) - 1
            bar = [(leg.begin_ns, leg.end_ns - leg.begin_ns)]
            axes.broken_barh(bar, (place + _ROW / 2, _PATH), color=_CRITICAL)
        axes.set_yticks(range(len(rows)), [program.steps[one.number].name for one in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, timeline.makespan_ns or 1)
        axes.xaxis.set_major_formatter(lambda value, _: format_seconds(value / 1e9))
        axes.set_title(f"{title}: {format_seconds(timeline.makespan_s)}", loc="left", fontsize=10)
        axes.set_xlabel("a line for each rank; red: the critical path", fontsize=8)
        axes.tick_params(labelsize=8)


def _add_lines(axes: Axes, timeline: Timeline, step: StepRows, place: int, color: str) -> None:
    """Add a line for each rank that has tasks of a step besides receives."""
    from matplotlib.collections import PolyCollection

    plan = timeline.plan
    n_lines = min(plan.n_ranks, MOST_LINES)
    ranks = np.linspace(0, plan.n_ranks - 1, n_lines).round().astype(np.int64)
    tasks = np.arange(step.first, step.end)
    bars = []
    for line, rank in enumerate(ranks.tolist()):
        own = tasks[plan.rank[tasks] == rank]
        begins = timeline.start_ns[own[plan.op[own] != Op.RECV]]
        if len(begins):
            first, end = float(begins.min()), float(timeline.end_ns[own].max())
            low = place - _ROW / 2 + _ROW * line / n_lines
            high = low + _ROW / n_lines
            bars.append([(first, low), (end, low), (end, high), (first, high)])
    axes.add_collection(PolyCollection(bars, color=color, linewidth=0))
