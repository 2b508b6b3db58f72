"""Choices of earlier searches, which the user's cache folder keeps.

A choice depends on the spec and on collplan alone. The name of its file is therefore a hash of
both, and other versions never read it. Files that are damaged, or that other users may write, are
missing (see `planner.machine_code.kept_files`), so that the search is repeated.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from collplan.planner.algorithms.registry import registry
from collplan.planner.machine_code.code_folders import cache_folder
from collplan.planner.machine_code.kept_files import make_private, read_kept, write_kept
from collplan.planner.passes.registry import pass_registry
from collplan.specs import Method, PlanSpec

MOST: Final = 1_000
"""Largest number of choices in the folder."""
_PACKAGE: Final = Path(__file__).parents[1]
_OURS: Final = "collplan."
"""Beginning of the names of our modules."""


def recall(spec: PlanSpec) -> dict[str, Any] | None:
    """Return what `remember` has kept for a spec, with its ``method``; None if there is nothing."""
    path = _path_of(spec)
    content = path and read_kept(path)
    if not content:
        return None
    with suppress(ValueError, TypeError, KeyError, ValidationError):
        found = json.loads(content)
        return {**found, "method": Method.model_validate(found["method"])}
    return None


def remember(spec: PlanSpec, method: Method, **figures: float) -> None:
    """Keep the method that was chosen for a spec, and figures of the search, if possible."""
    path = _path_of(spec)
    if path is None:
        return
    content = json.dumps({"method": method.model_dump(mode="json"), **figures})
    with suppress(OSError):
        make_private(path.parent)
        write_kept(path, content.encode())
        _drop_oldest(path.parent)


def _path_of(spec: PlanSpec) -> Path | None:
    """Return the file of a spec's choice; None if nothing can be kept for it."""
    folder = None if _has_own(spec) else cache_folder(Path(__file__).parent, "")
    if folder is None:
        return None
    op = spec.collective.op
    key = f"{_version()} {spec.model_dump_json()} {op is None or op.commutative}"
    return folder.with_name("choices") / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _has_own(spec: PlanSpec) -> bool:
    """Return whether algorithms or passes of the user's own may affect the choice.

    These may change from one process to the next under the same name.
    """
    own = any(one.is_own for kind in registry.kinds() for one in registry.of(kind))
    found = [pass_registry[one.name] for one in spec.passes if one.name in pass_registry]
    return own or not all(one.rewrite.__module__.startswith(_OURS) for one in found)


@cache
def _version() -> str:
    """Return a hash of collplan's version, and of the sizes and times of its source files."""
    digest = sha256(version("collplan").encode())
    for folder, folders, names in os.walk(_PACKAGE, followlinks=True):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()


def _drop_oldest(folder: Path) -> None:
    """Remove the oldest files of a folder that has too many; other processes may do the same."""
    ages = []
    for path in folder.iterdir():
        with suppress(OSError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-MOST]:
        with suppress(OSError):
            path.unlink()
