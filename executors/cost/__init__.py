"""The price of a plan without a machine: simulation, critical path, report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collplan.executors.cost.parameters import Loggps
    from collplan.executors.cost.report import cost_report
    from collplan.executors.cost.simulator import Timeline, simulate, simulate_each

__all__ = ["Loggps", "Timeline", "cost_report", "simulate", "simulate_each"]

_HOMES = {
    "Loggps": "parameters",
    "Timeline": "simulator",
    "cost_report": "report",
    "simulate": "simulator",
    "simulate_each": "simulator",
}


def __getattr__(name: str) -> Any:
    # Late, so that reading parameters or a report's keys does not load numba.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"collplan.executors.cost.{_HOMES[name]}"), name)
