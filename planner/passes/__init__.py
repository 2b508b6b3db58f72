"""Passes by name: pure functions from plan to plan, each of which its own module registers."""

from __future__ import annotations

from collplan.planner.discovery import import_modules
from collplan.planner.passes.registry import (
    Pass,
    find_pass,
    pass_registry,
    prove,
    run_blueprint_passes,
    run_passes,
)

__all__ = ["Pass", "find_pass", "pass_registry", "prove", "run_blueprint_passes", "run_passes"]

import_modules(__name__, __path__)
