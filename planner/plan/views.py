"""Views of objects in notebooks, which a layer above makes: imported when one is shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_made_by: list[str] = []


def make_views_in(module: str) -> None:
    """Tell the module whose functions make the views."""
    _made_by[:] = [module]


def view(name: str, shown: object) -> Any:
    """Call a view, such as the SVG of a plan, by the name of its function.

    Parameters
    ----------
    name : str
        The function's name.
    shown : object
    """
    (module,) = _made_by
    return getattr(import_module(module), name)(shown)
