"""Passes that order tasks, and the task graph with each message as one node."""

from collplan.planner.discovery import import_modules

import_modules(__name__, __path__)
