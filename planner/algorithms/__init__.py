"""Algorithms of every collective: a file per collective, which registers them."""

from __future__ import annotations

from collplan.planner.algorithms.registry import Algorithm, Registry, registry
from collplan.planner.discovery import import_modules

__all__ = ["Algorithm", "Registry", "registry"]

import_modules(__name__, __path__)
