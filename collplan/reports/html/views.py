"""Views of a plan for a report, as JSON: its graph, timeline, tasks and costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np

from collplan.executors.cost import cost_report, simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.traces.layers import Layer, Tracks, simulated_layer, tracks_of
from collplan.planner.arrays import Bools, Ints
from collplan.planner.draw import picture, rendering
from collplan.planner.draw.picture import MAX_READABLE_TASKS
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.topology.links import LINK_CLASSES
from collplan.reports.cost import link_lines, path_rows
from collplan.reports.html.assembly import paragraphs, table
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.timelines import choose_rows, mark_critical
from collplan.select.auto import resolve
from collplan.select.sweep import compile_priced
from collplan.specs import PlanSpec

MOST_SLICES: Final = 2_500
"""Number of bars of a timeline above which adjacent bars are merged."""
MOST_LINKS: Final = 16
"""Number of links in a table, which are the busiest ones."""
_PIXELS: Final = 600
"""Finest resolution, in pixels per makespan, at which bars of a timeline are merged."""
_LANE_OP: Final = "lane"
_SEVERAL: Final = "several kinds"
"""Kind of a merged bar of short tasks of different kinds."""

Json = dict[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """View of one plan: a JSON document for the browser, and the cost report of the plan."""

    document: Json
    cost: Json


def view_of(name: str, spec: PlanSpec) -> View:
    """Return the view of a candidate at the size of its spec.

    Raises
    ------
    CollplanError
        If the spec cannot be compiled, or the plan cannot be drawn.
    """
    planned = compile_priced(resolve(spec))
    return simulated_view(name, planned, simulate(planned))


def simulated_view(name: str, planned: Plan, timeline: Timeline) -> View:
    """Return the view of a simulated plan."""
    assert planned.spec is not None, "it was compiled from a spec"
    network = planned.spec.machine.network
    plan, cost = timeline.plan, cost_report(planned, timeline, network)
    tracks = tracks_of(simulated_layer(timeline, network))
    document = _document(name, timeline, tracks, mark_critical(timeline)) | {
        "makespan_s": cost["makespan_s"],
        "n_tasks": cost["n_tasks"],
        "breakdown": {kind: ns / 1e9 for kind, ns in cost["breakdown"].items() if ns > 0},
        "queued_s": cost["queued_s"],
        "lanes": _lane_table(name, plan, cost) + _link_table(timeline, cost),
        "path": table(("from", "takes", "", "task", "on", "waited for"), path_rows(cost, 24)),
    }
    return View(document, cost)


def measured_view(name: str, timeline: Timeline) -> Json:
    """Return the document of a plan with measured times, without critical path and costs."""
    layer = Layer("measured", timeline.plan, timeline.start_ns, timeline.end_ns)
    nothing = np.zeros(timeline.plan.n_tasks, dtype=np.bool_)
    return _document(name, timeline, tracks_of(layer), nothing)


def _document(name: str, timeline: Timeline, tracks: Tracks, is_critical: Bools) -> Json:
    """Return the document that is common to measured and simulated timelines."""
    plan = timeline.plan
    return {
        "name": name,
        "makespan_s": timeline.makespan_s,
        "n_tasks": plan.n_tasks,
        "n_messages": int(np.count_nonzero(plan.op == Op.SEND)) * plan.n_copies,
        "n_copies": plan.n_copies,
        "svg": drawing(picture(plan, "auto", timeline)),
        "timeline": timeline_of(plan, tracks, is_critical),
        "tasks": list(_tasks(plan, timeline, is_critical)),
        "breakdown": {},
        "lanes": "",
        "path": "",
    }


def drawing(source: str) -> str:
    """Render dot source as an SVG element without ids, since a page has several drawings."""
    svg = rendering.render(source, "svg").decode()
    return re.sub(r' id="[^"]*"', "", svg[svg.index("<svg") :])


def timeline_of(plan: Plan, tracks: Tracks, is_critical: Bools) -> Json:
    """Return the bars of a timeline as lists of their rows, kinds, times and tasks."""
    rows = choose_rows(plan, tracks, is_critical)
    row = rows.row_of[tracks.track]
    (chosen,) = np.nonzero((row >= 0) & (tracks.end > tracks.begin))
    is_lane = np.array(tracks.is_lane, dtype=np.bool_)[tracks.track[chosen]]
    task = tracks.row[chosen]
    kind = np.where(is_lane, -1, plan.op[task])
    on_path = is_critical[task] & ~is_lane
    begin, end = tracks.begin[chosen], tracks.end[chosen]
    first = _first_of_bars(row[chosen], kind, begin, end)
    (starts,) = np.nonzero(first)
    lasts = np.append(starts[1:], len(chosen))
    n_bytes = np.append(0, np.cumsum(plan.elements[task] * plan.itemsize))
    names = [*(op.name.lower() for op in Op), _LANE_OP]
    kinds = []
    if len(starts):
        ends = (each.reduceat(kind, starts).tolist() for each in (np.minimum, np.maximum))
        kinds = [names[low] if low == high else _SEVERAL for low, high in zip(*ends, strict=True)]
    return {
        "labels": rows.labels,
        "n_nodes": rows.n_nodes,
        "of_nodes": plan.n_nodes * plan.n_copies,
        "row": row[chosen][starts].tolist(),
        "kind": kinds,
        "begin": begin[starts].tolist(),
        "length": (end[lasts - 1] - begin[starts]).tolist() if len(starts) else [],
        "task": task[starts].tolist(),
        "n": (lasts - starts).tolist(),
        "bytes": (n_bytes[lasts] - n_bytes[starts]).tolist(),
        # A merged bar is on the critical path only if all of its tasks are; the line of the path
        # passes through it in any case.
        "critical": np.logical_and.reduceat(on_path, starts).astype(int).tolist()
        if len(starts)
        else [],
        "path": _path(row[chosen][on_path], begin[on_path], end[on_path]),
    }


def _first_of_bars(row: Ints, kind: Ints, begin: Ints, end: Ints) -> Bools:
    """Return a mask of the slices at which bars begin; too many bars are merged."""
    first = np.ones(len(row), dtype=np.bool_)
    pixels = _PIXELS
    while np.count_nonzero(first) > MOST_SLICES and pixels >= 1:
        gap = max(int(end.max()) // pixels, 1)
        is_short = end - begin < gap
        alike = (np.diff(kind) == 0) | (is_short[1:] & is_short[:-1] & (kind[1:] >= 0))
        first[1:] = ~(alike & (np.diff(row) == 0) & (begin[1:] - end[:-1] < gap))
        pixels //= 2
    return first


def _path(row: Ints, begin: Ints, end: Ints) -> list[list[int]]:
    """Return rows, begins and ends of the critical path, thinned to at most one per pixel."""
    order = np.argsort(begin, kind="stable")
    if len(order) > _PIXELS:
        place = begin[order] * _PIXELS // max(int(end.max()), 1)
        order = order[np.append(True, np.diff(place) > 0)]
    return [one[order].tolist() for one in (row, begin, end)]


def _tasks(plan: Plan, timeline: Timeline, is_critical: Bools) -> Iterator[Json]:
    """Generate the details of tasks for clicks; none if the graph has no box for each task."""
    if plan.n_tasks > MAX_READABLE_TASKS:
        return
    partner = timeline.partner.tolist()
    for task in plan.tasks():
        row = task.row
        waits = plan.deps.task[plan.deps.indptr[row] : plan.deps.indptr[row + 1]].tolist()
        is_recv = task.op is Op.RECV
        yield {
            "text": str(task),
            "rank": task.rank,
            "op": task.op.name.lower(),
            "bytes": int(plan.elements[row]) * plan.itemsize,
            "waits": [*waits, partner[row]] if is_recv and partner[row] >= 0 else waits,
            "message_of": partner[row] if is_recv else None,
            "start_ns": float(timeline.start_ns[row]),
            "end_ns": float(timeline.end_ns[row]),
            "lane": int(plan.lane[row]),
            "phase": plan.phases[int(plan.phase[row])].name,
            "critical": bool(is_critical[row]),
        }


def _lane_table(name: str, plan: Plan, cost: Json) -> str:
    """Return a table of the bytes sent on every lane, and its largest utilization."""
    (sends,) = np.nonzero((plan.op == Op.SEND) & (plan.lane >= 0))
    n_lanes = max((lane["lane"] for lane in cost["lanes"]), default=-1) + 1
    if not len(sends) or not n_lanes:
        return f"<p>{escape(name)} uses no lane: its messages stay inside nodes.</p>"
    n_bytes = np.zeros(plan.n_nodes * n_lanes, dtype=np.int64)
    place = plan.node[sends] * n_lanes + plan.lane[sends]
    np.add.at(n_bytes, place, plan.elements[sends] * plan.itemsize)
    rows: list[tuple[str, ...]] = []
    idle: list[str] = []
    for lane, of_lane in enumerate(n_bytes.reshape(plan.n_nodes, n_lanes).T):
        busiest = max(one["utilisation"] for one in cost["lanes"] if one["lane"] == lane)
        total = int(of_lane.sum()) * plan.n_copies
        if total == 0:
            idle.append(str(lane))
            continue
        sizes = [format_bytes(int(one)) for one in (of_lane.min(), of_lane.max(), total)]
        rows.append((str(lane), *sizes, f"{busiest:.0%}"))
    head = ("lane", "sent per node, least", "most", "sent by all nodes", "busy at most")
    busiest = max(cost["lanes"], key=lambda one: one["utilisation"])
    said = (
        f"The busiest is lane {busiest['lane']} of node {busiest['node']}, busy "
        f"{busiest['utilisation']:.0%} of the time."
    )
    if idle:
        said += f" No bytes are sent on lane{'s' * (len(idle) > 1)} {', '.join(idle)}."
    return f"<h3>{escape(name)}</h3>{table(head, rows)}{paragraphs([said])}"


def _link_table(timeline: Timeline, cost: Json) -> str:
    """Return a table of the busiest links of a topology, with remarks on all links."""
    if timeline.routes is None or "links" not in cost:
        return ""
    use, total_ns = LinkUse(timeline.routes), cost["makespan_ns"]
    fabric = use.routes.fabric
    rows = []
    for link in use.busiest(MOST_LINKS):
        busy_ns = float(use.busy_ns[link])
        share = f"{busy_ns / total_ns:.0%}" if total_ns else ""
        size = format_bytes(round(float(use.n_bytes[link])))
        kind = LINK_CLASSES[fabric.link_class[link]]
        rows.append((fabric.link_name(link), kind, size, format_seconds(busy_ns / 1e9), share))
    if not rows:
        return ""
    said = paragraphs(list(link_lines(cost["links"])))
    head = ("link, the busiest first", "class", "bytes", "take", "of the makespan")
    return said + table(head, rows)
