"""Import all modules of a package, so that each registers what it defines."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import the modules of a package and of its subpackages.

    Parameters
    ----------
    package : str
        The package's name.
    path : iterable of str
        The package's ``__path__``.
    """
    for module in pkgutil.walk_packages(path, f"{package}."):
        import_module(module.name)
