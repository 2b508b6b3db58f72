"""Passes that place the progress of communication on cores."""

from collplan.planner.discovery import import_modules

import_modules(__name__, __path__)
