"""The planner: specs in, plans out; no MPI, no clock."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collplan.planner.compiler.compile import compile_plan
    from collplan.planner.plan.plan import Plan

__all__ = ["Plan", "compile_plan"]


_HOMES = {"Plan": "plan.plan", "compile_plan": "compiler.compile"}
"""Modules of the names, which are imported late: reading a plan file needs no compiler."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
