"""Turn the files that commands get into plans."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan
    from collplan.specs import PlanSpec

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
    announce_compiling()
    if path.suffix == ".goal":
        from collplan.planner.formats.goal import read_goal

        _require_file(path)
        return read_goal(path)
    if is_plan_file(path):
        from collplan.planner.formats.npz import load

        return load(path)
    return compile_warning(open_spec(path))


def compile_warning(spec: PlanSpec, **options: Any) -> Plan:
    """Compile a spec; warn on standard error of every pass that changes nothing."""
    from collplan.compiling import compile_spec
    from collplan.reports.output import warn

    idle: list[str] = []
    plan = compile_spec(spec, idle=idle, **options)
    for line in idle:
        warn(line)
    return plan


def open_spec(path: Path) -> PlanSpec:
    """Return the spec in a file; on an emulated cluster it describes the cluster by default.

    Raises
    ------
    CollplanError
        If the file is no spec, or the machine at hand is told wrongly.
    """
    from collplan.specs.loading import load_spec, machine_at_hand

    announce_compiling()
    if path.suffix == ".goal":
        raise CollplanError(
            f"{path}: is a GOAL schedule, which says nothing of a collective; give a spec"
        )
    return load_spec(path, machine_at_hand())


def announce_compiling() -> None:
    """Say so on standard error if kernels have to be compiled from now on; one rank speaks."""
    from collplan.planner.arrays.compile_time import announce_with

    announce_with(_say_compiling)


def _say_compiling() -> None:
    from collplan.executors.mpi.launch.launcher import launcher_rank

    if launcher_rank() <= 0:
        sys.stderr.write("collplan: compiling kernels, once; later runs find them compiled\n")
        sys.stderr.flush()


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
    from collplan.specs.documents import require_regular

    require_regular(path, "spec, plan or GOAL")
