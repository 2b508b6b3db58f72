"""Cost of plans by simulation: timelines, critical paths and reports, without a machine."""

from __future__ import annotations

from collplan.executors.cost.parameters import Loggps
from collplan.executors.cost.report import cost_report
from collplan.executors.cost.simulator import Timeline, simulate, simulate_each

__all__ = ["Loggps", "Timeline", "cost_report", "simulate", "simulate_each"]
