"""Passes: pure functions from plan to plan, by name."""

from __future__ import annotations

from collplan.planner.passes import (
    add_compute,
    coalesce_requests,
    double_buffer,
    limit_requests,
    place_progress,
    prioritize,
    segment,
    share,
    split_lanes,
    split_tree,
)
from collplan.planner.passes.blueprint_level import run_blueprint_passes
from collplan.planner.passes.registry import Pass, find_pass, pass_registry, run_passes

__all__ = [
    "Pass",
    "add_compute",
    "coalesce_requests",
    "double_buffer",
    "find_pass",
    "limit_requests",
    "pass_registry",
    "place_progress",
    "prioritize",
    "run_blueprint_passes",
    "run_passes",
    "segment",
    "share",
    "split_lanes",
    "split_tree",
]
