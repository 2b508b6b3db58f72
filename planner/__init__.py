"""The planner: specs in, plans out; no MPI, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collplan.planner.compiler import compile_plan
    from collplan.planner.plan.plan import Plan

__all__ = ["Plan", "compile_plan"]


def __getattr__(name: str) -> Any:
    # Late, so that reading a plan file or a spec does not load the compiler.
    if name == "compile_plan":
        from collplan.planner.compiler import compile_plan

        return compile_plan
    if name == "Plan":
        from collplan.planner.plan.plan import Plan

        return Plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
