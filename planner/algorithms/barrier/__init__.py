"""Algorithms of barrier, a file each."""

from collplan.planner.discovery import import_modules

import_modules(__name__, __path__)
