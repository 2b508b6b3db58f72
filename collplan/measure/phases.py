"""Comparison of the measured and the simulated timeline of a plan, phase by phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner.arrays import Floats
from collplan.planner.plan.plan import Op, Plan

Times = tuple[Floats, Floats]
"""Start and end of every task in ns, shape (n_tasks,) each."""


def phase_times(
    name: str, measured: tuple[float, float], simulated: tuple[float, float]
) -> dict[str, Any]:
    """Return the measured and simulated interval of a phase as a dictionary that JSON can hold.

    Its ``error`` is the difference of the simulated and the measured duration, divided by
    the measured one; None if the measured duration is 0.

    Parameters
    ----------
    name : str
        Name of the phase, or of something else that the times belong to.
    measured, simulated : tuple of float
        Begin and end of the phase in s.
    """
    measured_s, simulated_s = measured[1] - measured[0], simulated[1] - simulated[0]
    return {
        "name": name,
        "measured_begin_s": measured[0],
        "measured_end_s": measured[1],
        "simulated_begin_s": simulated[0],
        "simulated_end_s": simulated[1],
        "measured_s": measured_s,
        "simulated_s": simulated_s,
        "error": simulated_s / measured_s - 1 if measured_s > 0 else None,
    }


def compare_phases(plan: Plan, measured: Times, simulated: Times) -> list[dict[str, Any]]:
    """Return the `phase_times` of every phase that has tasks, in the plan's order.

    A phase begins at the start of its first task that is not a receive, because receives
    are posted long before their messages arrive. It ends with its last task.

    Parameters
    ----------
    plan : Plan
        Plan whose tasks ran.
    measured, simulated : pair of ndarray of float64, shape (n_tasks,) each
        Start and end of every task in ns.

    Examples
    --------
    >>> from collplan.planner import compile_plan
    >>> from collplan.specs import parse_spec
    >>> spec = {"machine": {"nodes": 2}, "collective": {"kind": "bcast", "count": 1}}
    >>> plan = compile_plan(parse_spec(spec | {"algorithms": "binomial"}))
    >>> measured = np.array([100.0, 0.0]), np.array([300.0, 600.0])
    >>> simulated = np.array([0.0, 0.0]), np.array([200.0, 400.0])
    >>> [phase] = compare_phases(plan, measured, simulated)
    >>> print(f"{phase['name']}: {phase['measured_s'] * 1e9:.0f} ns, {phase['error']:+.0%}")
    bcast/binomial: 500 ns, -20%
    """
    spans = [_spans(plan, *times) for times in (measured, simulated)]
    return [
        phase_times(plan.phases[i].name, *((float(low[i]), float(high[i])) for low, high in spans))
        for i in np.unique(plan.phase).tolist()
    ]


def _spans(plan: Plan, start_ns: Floats, end_ns: Floats) -> Times:
    """Return the begin and the end of every phase in s, shape (n_phases,) each."""
    acts = plan.op != Op.RECV
    first = np.full(len(plan.phases), np.inf)
    first_posted, last = first.copy(), -first
    np.minimum.at(first, plan.phase[acts], start_ns[acts])
    np.minimum.at(first_posted, plan.phase, start_ns)
    np.maximum.at(last, plan.phase, end_ns)
    # Only plans written by hand have phases that consist of receives.
    return np.where(np.isinf(first), first_posted, first) / 1e9, last / 1e9
