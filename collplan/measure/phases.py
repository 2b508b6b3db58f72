"""Two timelines of one plan, phase by phase: what was measured and what was simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.plan.plan import Op, Plan

Floats = npt.NDArray[np.float64]
Times = tuple[Floats, Floats]
"""Start and end of every task in ns, shape (n_tasks,) each."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Interval of a phase, measured and simulated.

    Parameters
    ----------
    name : str
        The phase, or what else the times are of.
    measured, simulated : tuple of float
        Its begin and end in s.
    """

    name: str
    measured: tuple[float, float]
    simulated: tuple[float, float]

    @property
    def measured_s(self) -> float:
        """Return how long it really took."""
        return self.measured[1] - self.measured[0]

    @property
    def simulated_s(self) -> float:
        """Return how long it should have taken."""
        return self.simulated[1] - self.simulated[0]

    @property
    def error(self) -> float | None:
        """Return by what share of the measured time the simulated one is longer.

        None where nothing was measured to take time.
        """
        return self.simulated_s / self.measured_s - 1 if self.measured_s > 0 else None

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {
            "name": self.name,
            "measured_begin_s": self.measured[0],
            "measured_end_s": self.measured[1],
            "simulated_begin_s": self.simulated[0],
            "simulated_end_s": self.simulated[1],
            "measured_s": self.measured_s,
            "simulated_s": self.simulated_s,
            "error": self.error,
        }


def compare_phases(plan: Plan, measured: Times, simulated: Times) -> list[PhaseTimes]:
    """Return the times of every phase that has tasks, in the plan's order.

    A phase begins when the first of its tasks starts that is no receive: a
    receive is posted long before there is anything for it. It ends with its
    last task.

    Parameters
    ----------
    plan : Plan
        Whose tasks ran.
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
    >>> print(f"{phase.name}: {phase.measured_s * 1e9:.0f} ns measured, {phase.error:+.0%}")
    bcast/binomial: 500 ns measured, -20%
    """
    spans = [_spans(plan, *times) for times in (measured, simulated)]
    return [
        PhaseTimes(plan.phases[i].name, *((float(low[i]), float(high[i])) for low, high in spans))
        for i in np.unique(plan.phase).tolist()
    ]


def _spans(plan: Plan, start_ns: Floats, end_ns: Floats) -> Times:
    """Return begin and end of every phase in s."""
    acts = plan.op != Op.RECV
    first = np.full(len(plan.phases), np.inf)
    first_posted, last = first.copy(), -first
    np.minimum.at(first, plan.phase[acts], start_ns[acts])
    np.minimum.at(first_posted, plan.phase, start_ns)
    np.maximum.at(last, plan.phase, end_ns)
    # Only a plan written by hand has phases that do nothing but receive.
    return np.where(np.isinf(first), first_posted, first) / 1e9, last / 1e9
