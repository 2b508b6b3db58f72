"""Passes: pure functions from plan to plan, by name."""

from __future__ import annotations

from planner.passes import limit_requests, prioritize, segment
from planner.passes.registry import Pass, pass_registry, run_passes

__all__ = ["Pass", "limit_requests", "pass_registry", "prioritize", "run_passes", "segment"]
