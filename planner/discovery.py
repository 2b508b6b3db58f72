"""Import all modules of a package, so that each registers what it defines."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import the modules and subpackages of a package.

    Parameters
    ----------
    package : str
        The package's name.
    path : iterable of str
        The package's ``__path__``.
    """
    for module in pkgutil.iter_modules(path, f"{package}."):
        import_module(module.name)
