"""Views of objects in notebooks, which layers above make: found by name when they are shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_HOME: Final = "collplan.reports.notebook"


def view(name: str, shown: object) -> Any:
    """Return what a function of `collplan.reports.notebook` makes of an object.

    Parameters
    ----------
    name : str
        The function's name.
    shown : object
    """
    return getattr(import_module(_HOME), name)(shown)
