"""Passes: pure functions from plan to plan, by name."""

from __future__ import annotations

from planner.passes import limit_requests, prioritize, segment, split_lanes
from planner.passes.blueprint_level import run_blueprint_passes
from planner.passes.registry import Pass, pass_registry, run_passes

__all__ = [
    "Pass",
    "limit_requests",
    "pass_registry",
    "prioritize",
    "run_blueprint_passes",
    "run_passes",
    "segment",
    "split_lanes",
]
