"""A simulation's result as JSON and as a few lines of text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from executors.cost.critical_path import critical_path
from planner.plan import Op

if TYPE_CHECKING:
    from executors.cost.timeline import Timeline
    from planner.plan import Plan


def cost_report(plan: Plan, timeline: Timeline) -> dict[str, Any]:
    """Return what a simulation found, ready for JSON.

    Parameters
    ----------
    plan : Plan
        The plan that was simulated.
    timeline : Timeline
        Its simulation.

    Returns
    -------
    dict
        `makespan_s`; `makespan_ns`, exact where parameters are whole;
        `critical_path`, a list of ``{row, rank, op, start_s,
        end_s, waited_for}`` from start to end; `lanes`, a list of ``{node,
        lane, out_busy_s, in_busy_s, utilisation}``, the busier direction's
        share of the makespan; `cores`, a list of ``{node, core, busy_s,
        utilisation}`` of all that do anything; `simulate_s`; `n_tasks`.
    """
    makespan = timeline.makespan_s
    path = [
        {
            "row": step.row,
            "rank": int(plan.rank[step.row]),
            "op": Op(int(plan.op[step.row])).name.lower(),
            "start_s": float(timeline.start_ns[step.row]) / 1e9,
            "end_s": float(timeline.end_ns[step.row]) / 1e9,
            "waited_for": step.waited_for,
        }
        for step in critical_path(timeline)
    ]
    lanes = [
        {
            "node": node,
            "lane": lane,
            "out_busy_s": float(busy[0]) / 1e9,
            "in_busy_s": float(busy[1]) / 1e9,
            "utilisation": _share(float(busy.max()) / 1e9, makespan),
        }
        for node, of_node in enumerate(timeline.lane_busy_ns)
        for lane, busy in enumerate(of_node)
    ]
    cores = [
        {
            "node": int(node),
            "core": int(core),
            "busy_s": float(timeline.core_busy_ns[node, core]) / 1e9,
            "utilisation": _share(float(timeline.core_busy_ns[node, core]) / 1e9, makespan),
        }
        for node, core in np.argwhere(timeline.core_busy_ns > 0)
    ]
    return {
        "makespan_s": makespan,
        "makespan_ns": timeline.makespan_ns,
        "critical_path": path,
        "lanes": lanes,
        "cores": cores,
        "simulate_s": timeline.simulate_s,
        "n_tasks": plan.n_tasks,
    }


def cost_text(report: dict[str, Any], n_steps: int = 12) -> str:
    """Return a report for people: makespan, busiest resources, the end of the critical path.

    Parameters
    ----------
    report : dict
        What `cost_report` returned.
    n_steps : int
        Steps of the critical path to show; earlier ones are counted only.
    """
    lines = [
        f"makespan {_duration(report['makespan_s'])}: {report['n_tasks']} tasks simulated in "
        f"{_duration(report['simulate_s'])}"
    ]
    for kind, resources in (("lane", report["lanes"]), ("core", report["cores"])):
        top = max(resources, key=lambda resource: resource["utilisation"], default=None)
        if top is not None and top["utilisation"] > 0:  # one node uses no lane
            mean = sum(resource["utilisation"] for resource in resources) / len(resources)
            lines.append(
                f"busiest {kind}: {top[kind]} of node {top['node']}, {top['utilisation']:.0%} of "
                f"the time ({len(resources)} {kind}s, {mean:.0%} on average)"
            )
    path = report["critical_path"]
    if path:
        waits = Counter(step["waited_for"] for step in path[1:])
        reasons = ", ".join(f"{count} × {reason}" for reason, count in sorted(waits.items()))
        lines.append(
            f"critical path: {len(path)} tasks" + (f", waiting: {reasons}" if waits else "")
        )
    if len(path) > n_steps:
        lines.append(f"  … {len(path) - n_steps} earlier tasks")
    lines += [
        f"  #{step['row']} rank {step['rank']} {step['op']}: {_duration(step['start_s'])} to "
        f"{_duration(step['end_s'])}, waited for {step['waited_for']}"
        for step in path[-n_steps:]
    ]
    return "\n".join(lines)


def _share(busy_s: float, makespan_s: float) -> float:
    return busy_s / makespan_s if makespan_s > 0 else 0.0


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
