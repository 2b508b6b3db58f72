"""Specs, programs and plans in any form that users have them: objects, mappings and files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from collplan.planner.plan.plan import Plan
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.syntax.calling import wrong_type
from collplan.specs.syntax.documents import require_regular

if TYPE_CHECKING:
    from collplan.specs import PlanSpec, ProgramSpec

Request: TypeAlias = "PlanSpec | ProgramSpec"
Source: TypeAlias = "PlanSpec | ProgramSpec | Plan | Mapping[str, Any] | str | Path"
"""A spec, a program or a plan in any form: an object, the mapping of its fields, or a path."""

ZIP_MAGIC: Final = b"PK\x03\x04"
PLAN_SUFFIXES: Final = (".plan", ".npz")
_KINDS: Final = "spec, plan or GOAL"
_FORMS: Final = "a spec, a mapping of its fields, the path of a YAML or JSON file, or a plan"


def read_source(source: Source, name: str = "source") -> Request | Plan:
    """Return the spec, the program or the plan that users mean.

    Parameters
    ----------
    source : PlanSpec, ProgramSpec, Plan, mapping, str or Path
        An object; the fields of a spec or a program; or the path of a YAML or JSON file with
        them, of a plan file, or of a GOAL file.
    name : str
        Name of the argument in errors.

    Raises
    ------
    ArgumentError
        If the source is of none of these types.
    CollplanError
        If the fields or the file are not valid.
    """
    if isinstance(source, Plan):
        return source
    if isinstance(source, str) and (not source.strip() or "\n" in source):
        problem = "is a text of several lines" if source.strip() else "is empty"
        raise CollplanError(f"{name}: {show_value(source)} {problem}; give {_FORMS}")
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    from collplan.specs import PlanSpec, ProgramSpec
    from collplan.specs.loading import is_program, parse_program, parse_spec

    if isinstance(source, PlanSpec | ProgramSpec):
        return source
    if isinstance(source, Mapping):
        return parse_program(source) if is_program(source) else parse_spec(source)
    raise wrong_type(name, source, _FORMS)


def _read_file(path: Path) -> Request | Plan:
    if path.suffix == ".goal" or is_plan_file(path):
        return read_schedule(path)
    from collplan.specs.loading import load_request, machine_at_hand

    return load_request(path, machine_at_hand())


def request_of(source: Source, name: str = "source") -> Request:
    """Return the spec or the program that users mean; of a plan, what it was compiled from.

    Raises
    ------
    CollplanError
        As for `read_source`; or if the plan is an imported schedule.
    """
    found = read_source(source, name)
    if not isinstance(found, Plan):
        return found
    request = found.program if found.spec is None else found.spec
    if request is None:
        raise CollplanError(f"{name}: the plan is an imported schedule without a spec; give a spec")
    return request


def spec_of(source: Source, name: str = "source") -> PlanSpec:
    """Return the spec that users mean.

    Raises
    ------
    CollplanError
        As for `request_of`; or if the source is a program.
    """
    from collplan.specs import PlanSpec

    found = request_of(source, name)
    if not isinstance(found, PlanSpec):
        raise CollplanError(f"{name}: is a program of several collectives; give a spec of one")
    return found


def is_plan_file(path: Path) -> bool:
    """Return whether a file is a plan file, by its first bytes or its suffix.

    Raises
    ------
    CollplanError
        If there is no such file.
    """
    require_regular(path, _KINDS)
    with path.open("rb") as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC or path.suffix in PLAN_SUFFIXES


def read_schedule(path: Path) -> Plan:
    """Return the plan of a plan file or a GOAL file.

    Raises
    ------
    CollplanError
        If the file is invalid. Of a plan file, the spec is checked, too.
    """
    if path.suffix == ".goal":
        from collplan.planner.formats.goal import read_goal

        return read_goal(path)
    from collplan.planner.formats.npz import load

    plan = load(path)
    _ = plan.spec
    return plan
