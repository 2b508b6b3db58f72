"""Algorithms, passes, operations and collectives of the user's own, in files and packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from collplan.specs.collectives.by_kind import ByKind
from collplan.specs.errors import CollplanError

FILES: Final = "COLLPLAN_IMPORT"
"""Environment variable with the files to import; processes that collplan starts inherit it."""
GROUP: Final = "collplan.algorithms"
"""The group of entry points that are loaded before a command runs."""


_asked: Final[set[str]] = set()
"""Files that options name; others are from the environment variable `FILES`."""
native_call: Final = ByKind[Callable[[Any, Any, Any, bool], Any]](
    "MPI has no {} to measure; register a call with collplan.own_algorithms.native_call"
)
"""Calls for kinds that MPI does not have, to measure plans against.

They take a communicator, MPI's send and receive arguments, and whether to return a request
at once instead of waiting.
"""


def own_files() -> list[str]:
    """Return the files that were asked for, in their order."""
    return [path for path in os.environ.get(FILES, "").split(os.pathsep) if path]


def ask_for(files: Sequence[Path]) -> None:
    """Have files imported here and in all processes that we start."""
    asked = [str(path.resolve()) for path in files]
    _asked.update(asked)
    paths = [*own_files(), *asked]
    if paths:
        os.environ[FILES] = os.pathsep.join(dict.fromkeys(paths))


def import_own() -> None:
    """Import all files that were asked for, and what installed packages offer; once.

    Raises
    ------
    CollplanError
        If one cannot be imported.
    """
    for text in own_files():
        _import_file(Path(text))
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except (Exception, SystemExit) as error:
            raise CollplanError(
                f"entry point {point.name} of {GROUP}: {point.value} cannot be imported "
                f"({_describe(error)}); mend or uninstall it"
            ) from None


def _import_file(path: Path) -> None:
    name = f"collplan_own_{path.stem}"
    if getattr(sys.modules.get(name), "__file__", None) == str(path):
        return
    option = "--import" if str(path) in _asked else FILES
    if not path.is_file():
        raise CollplanError(f"{option}: {path}: no such file; give a Python file")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CollplanError(f"{option}: {path}: is not a Python file; give one that ends in .py")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for what it imports that lies beside it
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise CollplanError(
            f"{option}: {path}: cannot be imported ({_describe(error)}); mend it"
        ) from None


def _describe(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
