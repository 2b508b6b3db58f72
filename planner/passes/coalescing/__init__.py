"""Passes that join messages and reuse the blocks that receive them."""

from collplan.planner.discovery import import_modules

import_modules(__name__, __path__)
