"""Cost reports: the results of a simulation as values for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.executors.cost.critical_path import Leg, breakdown, legs
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.time_bound import time_bound
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.views import view
from collplan.specs import Network


class Cost(dict[str, Any]):
    """A cost report: a dict with a short representation, which is a table in notebooks."""

    def __repr__(self) -> str:
        """Return the number of tasks and the makespan."""
        return f"<Cost: {self['n_tasks']:,} tasks in {self['makespan_ns']:,.1f} ns>"

    def _repr_html_(self) -> str:
        """Return the breakdown of the time as an HTML table for notebooks."""
        table: str = view("cost_html", self)
        return table


def cost_report(plan: Plan, timeline: Timeline, network: Network | None = None) -> Cost:
    """Return the results of a simulation as values for JSON.

    Parameters
    ----------
    plan : Plan
        Plan that was given to `simulate`.
    timeline : Timeline
    network : Network or None
        Network of the simulation; None as in `simulate`.

    Returns
    -------
    Cost
        A dict with these keys:

        - `makespan_s` and `makespan_ns`; the latter is exact if all parameters are whole.
        - `breakdown`: the time of the critical path by kind in ns; the sum is the makespan.
        - `queued_s`: the part of the critical path in which the next task waits for a resource.
        - `bound_s`, `bound` and `bounds_s`: the greatest lower bound for all plans, what takes
          this time, and all of `TimeBound.terms`; None and no terms if unknown.
        - `critical_path`: a list in order of time of ``{row, rank, op, peer, bytes, node,
          core, lane, phase, start_s, end_s, begin_s, takes_s, waited_for, queued_s,
          resource}``.
        - `pcie_reads`: number of reads of all lanes; None if adapters hold all queue pairs.
        - `lanes`: a list of ``{node, lane, out_busy_s, in_busy_s, utilisation, pcie_reads}``;
          `utilisation` is the busy time of the busier direction divided by the makespan.
        - `cores`: a list of ``{node, core, busy_s, utilisation}`` for all cores with tasks.
        - `simulate_s`: duration of the simulation itself.
        - `n_tasks` and `n_ranks`.
        - `n_copies`: number of nodes of a folded plan, of which the first is reported; else 1.
        - `priced_as`: the phases that were simulated in place of native collectives of MPI.
        - `links`, only over a topology: see `LinkUse.report`.
    """
    if network is None:
        network = Network() if plan.machine is None else plan.machine.network
    phases = zip(plan.phases, timeline.plan.phases, strict=False)
    priced_as = {one.name: other.name for one, other in phases if one.is_native}
    plan = timeline.plan
    path = legs(timeline, network)
    return Cost(
        {
            "makespan_s": timeline.makespan_s,
            "makespan_ns": timeline.makespan_ns,
            "breakdown": breakdown(path),
            "queued_s": sum(leg.queued_ns for leg in path) / 1e9,
            **_bounds(timeline, network),
            "critical_path": _steps(plan, timeline, path),
            "pcie_reads": None if timeline.pcie_reads is None else int(timeline.pcie_reads.sum()),
            "lanes": _lanes(timeline),
            "cores": _cores(timeline),
            "simulate_s": timeline.simulate_s,
            "n_tasks": plan.n_tasks * plan.n_copies,
            "n_ranks": plan.n_ranks * plan.n_copies,
            "n_copies": plan.n_copies,
            "priced_as": priced_as,
            **_links(timeline),
        }
    )


def _bounds(timeline: Timeline, network: Network) -> dict[str, Any]:
    """Return the lower bound of any plan, what takes its time, and its terms."""
    spec = timeline.plan.spec
    if spec is None:
        return {"bound_s": None, "bound": None, "bounds_s": {}}
    bound = time_bound(spec, network, allocated=timeline.is_allocated)
    what = bound.what if bound.time_s else None
    return {"bound_s": bound.time_s or None, "bound": what, "bounds_s": bound.terms}


def _links(timeline: Timeline) -> dict[str, Any]:
    """Return the use of links, if there is a topology."""
    if timeline.routes is None:
        return {}
    return {"links": LinkUse(timeline.routes).report(timeline.makespan_ns)}


def _steps(plan: Plan, timeline: Timeline, path: tuple[Leg, ...]) -> list[dict[str, Any]]:
    """Return the tasks of the path; the posting and the message of a receive are one step."""
    steps: list[dict[str, Any]] = []
    peer = plan.far_peer
    for leg in path:
        if steps and steps[-1]["row"] == leg.row:
            steps[-1]["takes_s"] = leg.end_ns / 1e9 - steps[-1]["begin_s"]
            steps[-1]["queued_s"] += leg.queued_ns / 1e9
            continue
        row = leg.row
        op = Op(int(plan.op[row]))
        is_message = op in (Op.SEND, Op.RECV)
        lane = int(plan.lane[row])
        steps.append(
            {
                "row": row,
                "rank": int(plan.rank[row]),
                "op": op.name.lower(),
                "peer": int(peer[row]) if is_message else None,
                "bytes": int(plan.elements[row]) * plan.itemsize,
                "node": int(plan.rank_node[plan.rank[row]]),
                "core": int(plan.core[row]),
                "lane": lane if lane >= 0 else None,
                "phase": plan.phases[int(plan.phase[row])].name,
                "start_s": float(timeline.start_ns[row]) / 1e9,
                "end_s": float(timeline.end_ns[row]) / 1e9,
                "begin_s": leg.begin_ns / 1e9,
                "takes_s": (leg.end_ns - leg.begin_ns) / 1e9,
                "waited_for": leg.waited_for,
                "queued_s": leg.queued_ns / 1e9,
                "resource": leg.resource.to_json() if leg.resource else None,
            }
        )
    return steps


def _lanes(timeline: Timeline) -> list[dict[str, Any]]:
    reads = timeline.pcie_reads
    return [
        {
            "node": node,
            "lane": lane,
            "out_busy_s": float(busy[0]) / 1e9,
            "in_busy_s": float(busy[1]) / 1e9,
            "utilisation": _share(float(busy.max()), timeline.makespan_ns),
            "pcie_reads": None if reads is None else int(reads[node, lane]),
        }
        for node, of_node in enumerate(timeline.lane_busy_ns)
        for lane, busy in enumerate(of_node)
    ]


def _cores(timeline: Timeline) -> list[dict[str, Any]]:
    busy_ns = timeline.core_busy_ns
    return [
        {
            "node": int(node),
            "core": int(core),
            "busy_s": float(busy_ns[node, core]) / 1e9,
            "utilisation": _share(float(busy_ns[node, core]), timeline.makespan_ns),
        }
        for node, core in np.argwhere(busy_ns > 0)
    ]


def _share(busy_ns: float, makespan_ns: float) -> float:
    return busy_ns / makespan_ns if makespan_ns > 0 else 0.0
