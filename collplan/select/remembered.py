"""Choices of earlier searches, which the user's cache folder keeps.

A choice depends on the spec or program, and on collplan alone. The name of its file is therefore a
hash of both, and other versions never read it. Files that are damaged, or that other users may
write, are missing (see `planner.machine_code.kept_files`), so that the search is repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from collplan.planner.algorithms.registry import registry
from collplan.planner.machine_code.code_folders import cache_folder
from collplan.planner.machine_code.kept_files import make_private, read_kept, write_kept
from collplan.planner.passes.registry import pass_registry
from collplan.specs import PassChoice, PlanSpec
from collplan.specs.programs.program import ProgramSpec

MOST: Final = 1_000
"""Largest number of choices in the folder."""
_PACKAGE: Final = Path(__file__).parents[1]
_OURS: Final = "collplan."
"""Beginning of the names of our modules."""


Request = PlanSpec | ProgramSpec
"""Description of a plan: that of a collective, or that of a program."""


def recall(request: Request) -> dict[str, Any] | None:
    """Return what `remember` has kept for a spec or a program; None if there is nothing."""
    path = _path_of(request)
    content = path and read_kept(path)
    if not content:
        return None
    with suppress(ValueError):
        found = json.loads(content)
        return found if isinstance(found, dict) else None
    return None


def remember(request: Request, **content: Any) -> None:
    """Keep what was chosen for a spec or a program, as JSON, and figures of the search."""
    path = _path_of(request)
    if path is None:
        return
    with suppress(OSError):
        make_private(path.parent)
        write_kept(path, json.dumps(content).encode())
        _drop_oldest(path.parent)


def _path_of(request: Request) -> Path | None:
    """Return the file of a choice; None if nothing can be kept for it."""
    parts = (request,) if isinstance(request, PlanSpec) else request.steps
    passes = [one for part in parts for one in part.passes]
    folder = None if _has_own(passes) else cache_folder(Path(__file__).parent, "")
    if folder is None:
        return None
    collectives = [part.collective for part in parts if part.collective is not None]
    commute = [one.op is None or one.op.commutative for one in collectives]
    key = f"{_version()} {request.model_dump_json()} {commute}"
    return folder.with_name("choices") / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _has_own(passes: Sequence[PassChoice]) -> bool:
    """Return whether algorithms or passes of the user's own may affect the choice.

    These may change from one process to the next under the same name.
    """
    own = any(one.is_own for kind in registry.kinds() for one in registry.of(kind))
    found = [pass_registry[one.name] for one in passes if one.name in pass_registry]
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
