"""Pictures of timelines, with a row per core and lane, and lines between rows for messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collplan.executors.cost.critical_path import critical_rows
from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.traces.layers import Tracks, simulated_layer, tracks_of
from collplan.planner.arrays import Bools, Ints
from collplan.planner.draw.style import OP_LOOKS
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Plan
from collplan.reports.output import format_seconds
from collplan.reports.plots import new_figure
from collplan.specs import Network

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TRACKS: Final = 96
"""Largest number of cores and lanes in a picture, which shows nodes only as a whole."""
MOST_MESSAGES: Final = 2_000
"""Number of messages above which only those of the critical path are drawn."""
CRITICAL: Final = "#c8102e"
_MESSAGE: Final = "#8a94a3"
_LANE: Final = "#dfe4ea"
_WIDTH_INCHES: Final = 10.0
_TRACK_INCHES: Final = 0.2
_MARGIN_INCHES: Final = 1.1
_FEW_TASKS: Final = 50
"""Number of tasks of the critical path above which its lines become thinner."""
_THINNEST: Final = 0.25
_BAR: Final = 0.72
"""Height of a bar as a fraction of the distance between tracks."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A timeline to draw, with its title and the network on which it was simulated."""

    title: str
    timeline: Timeline
    network: Network


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Rows of the tracks that are drawn, -1 for other tracks, with labels and number of nodes."""

    row_of: Ints
    labels: list[str]
    n_nodes: int


def plot_timelines(path: Path, shown: Sequence[Simulated]) -> None:
    """Draw timelines one above the other, on a common time axis.

    Every core that is used has a row, and every lane has one row per direction. The tasks of
    the critical path have a red border, and its messages are red lines. For a large machine,
    only the nodes with the most tasks of the critical path are drawn.

    Parameters
    ----------
    path : Path
        SVG, PNG or PDF file to write.
    shown : sequence of Simulated, shape (n,)
        Timelines to draw, at least one.

    Raises
    ------
    CollplanError
        If the path is not valid for a plot, or a plan is folded or holds only one rank's program.
    """
    for one in shown:
        require_all_ranks(one.timeline.plan)
    tracks = [tracks_of(simulated_layer(one.timeline, one.network)) for one in shown]
    critical = [mark_critical(one.timeline) for one in shown]
    rows = [
        choose_rows(one.timeline.plan, of_one, marks)
        for one, of_one, marks in zip(shown, tracks, critical, strict=True)
    ]
    heights = [max(2, len(one.labels)) for one in rows]
    inches = _TRACK_INCHES * sum(heights) + _MARGIN_INCHES * len(shown)
    with new_figure(path, (_WIDTH_INCHES, inches)) as figure:
        grid = {"height_ratios": heights}
        found = figure.subplots(len(shown), sharex=True, squeeze=False, gridspec_kw=grid)
        all_axes = list(found[:, 0])
        for i, axes in enumerate(all_axes):
            _draw(axes, shown[i], tracks[i], critical[i], rows[i])
        finish_axes(all_axes, max(one.timeline.makespan_ns for one in shown))


def require_all_ranks(plan: Plan) -> None:
    """Raise `PlanError` if a plan is folded, or is the program of one rank."""
    if plan.folding is not None:
        raise PlanError("--timeline: the plan is folded; unfold it, or draw a smaller machine")
    if plan.only_rank is not None:
        raise PlanError("--timeline: the plan is one rank's program; give the plan of all ranks")


def mark_critical(timeline: Timeline) -> Bools:
    """Return a mask of the tasks of the critical path, shape (n_tasks,)."""
    is_critical = np.zeros(timeline.plan.n_tasks, dtype=np.bool_)
    is_critical[list(critical_rows(timeline))] = True
    return is_critical


def choose_rows(plan: Plan, tracks: Tracks, is_critical: Bools) -> Rows:
    """Choose the tracks to draw: all used ones, or those of nodes with the most critical tasks."""
    node = np.array(tracks.node, dtype=np.int64)
    is_used = np.zeros(len(node), dtype=np.bool_)
    is_used[tracks.track] = True
    n_visits = np.bincount(plan.node[is_critical], minlength=plan.n_nodes)
    kept = np.zeros(plan.n_nodes, dtype=np.bool_)
    room = MOST_TRACKS
    for number in np.argsort(-n_visits, kind="stable").tolist():
        room -= int(np.count_nonzero(is_used & (node == number)))
        if room < 0 and kept.any():
            break
        kept[number] = True
    chosen = np.flatnonzero(is_used & kept[node])
    # The lanes of a node are below its cores.
    chosen = chosen[np.argsort(node[chosen], kind="stable")]
    row_of = np.full(len(node), -1)
    row_of[chosen] = np.arange(len(chosen))
    labels = [_label(plan, tracks, track) for track in chosen.tolist()]
    return Rows(row_of, labels, int(kept.sum()))


def _label(plan: Plan, tracks: Tracks, track: int) -> str:
    """Return the label of a track: the rank if it is the only one on a core, else core or lane."""
    node, name = tracks.node[track], tracks.names[track]
    if not tracks.is_lane[track]:
        _, number, *more = name.split()
        core = int(number)
        (ranks,) = np.nonzero((plan.rank_node == node) & (plan.rank_core == core))
        if len(ranks) == 1:
            return " ".join((f"rank {ranks[0]}", *more))
    return name if plan.n_nodes == 1 else f"node {node} {name}"


def _draw(axes: Axes, one: Simulated, tracks: Tracks, is_critical: Bools, rows: Rows) -> None:
    """Draw the bars and messages of a timeline."""
    plan, row = one.timeline.plan, rows.row_of[tracks.track]
    is_lane = np.array(tracks.is_lane)[tracks.track]
    op = plan.op[tracks.row]
    _add_bars(
        axes, tracks, row, is_lane & (row >= 0), label="lane", facecolor=_LANE, edgecolor=_MESSAGE
    )
    for each, look in OP_LOOKS.items():
        chosen = (op == each) & ~is_lane & (row >= 0)
        colors = {"facecolor": look["fillcolor"], "edgecolor": look["color"]}
        _add_bars(axes, tracks, row, chosen, label=each.name.lower(), **colors)
    on_path = is_critical[tracks.row] & ~is_lane & (row >= 0)
    scale = thickness(int(np.count_nonzero(on_path)))
    _add_bars(
        axes, tracks, row, on_path,
        facecolor="none", edgecolor=CRITICAL, linewidth=1.4 * scale, zorder=4,
        label="critical path",
    )  # fmt: skip
    _add_messages(axes, tracks, row, is_critical, scale)
    axes.set_ylim(max(1.5, len(rows.labels) - 0.5), -0.5)
    axes.set_yticks(range(len(rows.labels)), rows.labels, fontsize=7)
    of = "" if rows.n_nodes == plan.n_nodes else f", {rows.n_nodes} of {plan.n_nodes} nodes"
    title = f"{one.title}: {format_seconds(one.timeline.makespan_s)}{of}"
    axes.set_title(title, fontsize=10, loc="left")


def _add_bars(axes: Axes, tracks: Tracks, row: Ints, chosen: Bools, **look: Any) -> None:
    """Add the chosen slices as bars in their rows."""
    from matplotlib.collections import PolyCollection

    if not chosen.any():
        return
    begin, end = tracks.begin[chosen], tracks.end[chosen]
    low, high = row[chosen] - _BAR / 2, row[chosen] + _BAR / 2
    corners = np.array([[begin, low], [begin, high], [end, high], [end, low]])
    axes.add_collection(
        PolyCollection(list(corners.transpose(2, 0, 1)), **{"linewidth": 0.6} | look)
    )


def thickness(n_tasks: int) -> float:
    """Return the thickness of the critical path's lines, relative to that of a short path.

    Examples
    --------
    >>> thickness(10), thickness(100), thickness(10_000)
    (1.0, 0.5, 0.25)
    """
    return min(1.0, max(_THINNEST, _FEW_TASKS / max(1, n_tasks)))


def _add_messages(axes: Axes, tracks: Tracks, row: Ints, is_critical: Bools, scale: float) -> None:
    """Add a line for each message, from the end of its send to the begin of its receive."""
    from matplotlib.collections import LineCollection

    sends, recvs = tracks.sends, tracks.recvs
    is_drawn = (row[sends] >= 0) & (row[recvs] >= 0)
    on_path = is_drawn & is_critical[tracks.row[sends]] & is_critical[tracks.row[recvs]]
    looks = [(on_path, CRITICAL, 1.6 * scale, 5)]
    n_drawn = int(np.count_nonzero(is_drawn))
    if n_drawn <= MOST_MESSAGES:
        looks.append((is_drawn & ~on_path, _MESSAGE, max(0.2, 0.7 * thickness(n_drawn // 4)), 3))
    for chosen, color, width, order in looks:
        ends = np.array([
            [tracks.end[sends[chosen]], row[sends[chosen]]],
            [tracks.begin[recvs[chosen]], row[recvs[chosen]]],
        ])  # fmt: skip
        lines = LineCollection(list(ends.transpose(2, 0, 1)), colors=color, linewidths=width)
        lines.set_zorder(order)
        if color == _MESSAGE and chosen.any():
            lines.set_label("message")
        axes.add_collection(lines)
        size = 3 * scale if color == CRITICAL else 4 * width
        axes.plot(*ends[1], ".", color=color, markersize=size, zorder=order)


def finish_axes(all_axes: Sequence[Axes], makespan_ns: float) -> None:
    """Set a common time scale for all axes, and add one legend."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    entries: dict[str, Any] = {}
    for axes in all_axes:
        axes.set_xlim(0, max(makespan_ns, 1.0) * 1.01)
        axes.grid(visible=True, axis="x", color="#e3e5e8", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    last = all_axes[-1]
    last.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    last.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: format_seconds(ns * 1e-9)))
    figure = last.get_figure()
    assert figure is not None
    figure.legend(
        list(entries.values()), list(entries), fontsize=8,
        loc="outside lower center", ncols=max(1, len(entries)), frameon=False,
    )  # fmt: skip
