"""Turn the files that commands get into plans."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from specs.errors import CollplanError

if TYPE_CHECKING:
    from planner.plan import Plan
    from specs import PlanSpec

MACHINE = "COLLPLAN_MACHINE"
"""Environment variable that tells the machine at hand, as JSON."""
ZIP_MAGIC = b"PK\x03\x04"
PLAN_SUFFIXES = (".plan", ".npz")


def open_plan(path: Path) -> Plan:
    """Return the plan that a spec, a plan file or a GOAL file describes.

    Plan files are known by their first bytes, whatever they are called.

    Raises
    ------
    CollplanError
        If the file is none of these, or does not hold what it should.
    """
    if path.suffix == ".goal":
        from planner.formats.goal import read_goal

        _require_file(path)
        return read_goal(path)
    if is_plan_file(path):
        from planner.plan import Plan

        return Plan.load(path)
    from planner import compile_plan

    return compile_plan(open_spec(path))


def open_spec(path: Path) -> PlanSpec:
    """Return the spec in a file; on an emulated cluster it describes the cluster by default.

    Raises
    ------
    CollplanError
        If the file is no spec, or the machine at hand is told wrongly.
    """
    from pydantic import ValidationError

    from specs import Machine, load_spec
    from specs.loading import explain

    text = os.environ.get(MACHINE)
    try:
        here = None if text is None else Machine.model_validate_json(text)
    except ValidationError as error:
        raise CollplanError(f"{MACHINE}: is no machine: {explain(error)}; unset it") from None
    return load_spec(path, here)


def is_plan_file(path: Path) -> bool:
    """Return whether `path` is to be read as a plan file.

    Raises
    ------
    CollplanError
        If there is no such file.
    """
    _require_file(path)
    with path.open("rb") as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC or path.suffix in PLAN_SUFFIXES


def _require_file(path: Path) -> None:
    if not path.exists():
        raise CollplanError(f"{path}: no such file; give a spec, a plan or a GOAL schedule")
    if path.is_dir():
        raise CollplanError(f"{path}: is a directory; give a file in it")
