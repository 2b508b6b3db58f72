"""Compile specs as users write them: `auto` is resolved, and idle passes are told of."""

from __future__ import annotations

import warnings

from collplan.planner.compiler import compile_plan
from collplan.planner.plan.plan import Plan
from collplan.select.auto import resolve
from collplan.specs import PlanSpec


def compile_spec(spec: PlanSpec, *, rank: int | None = None, idle: list[str] | None = None) -> Plan:
    """Compile a spec, choosing a decomposition where it leaves that to the planner.

    Parameters, result and errors are those of `collplan.planner.compile_plan`; where
    `idle` is given, its lines stand in for the warnings.

    Warns
    -----
    UserWarning
        For every pass of the spec that leaves the whole plan as it is; the message
        says what the pass needs. One rank's program is compiled without warnings,
        because a pass that changes nothing there may change another rank's.
    """
    lines: list[str] = []
    # Only of passes that the spec names: what `auto` chooses is nobody's mistake.
    told = lines if spec.passes else None
    plan = compile_plan(resolve(spec), rank=rank, idle=told)
    if idle is not None:
        idle += lines
    elif rank is None:
        for line in lines:
            warnings.warn(line, stacklevel=2)
    return plan
