"""Messages inside a node as copies through memory its ranks share."""

from collplan.planner.discovery import import_modules

import_modules(__name__, __path__)
