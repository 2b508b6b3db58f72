"""Read specs and machines from files, mappings and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.specs.errors import SpecError
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import Machine
from collplan.specs.request import PlanSpec
from collplan.specs.syntax.calling import explains_calls
from collplan.specs.syntax.documents import parse_json, read_document
from collplan.specs.topology.files import open_topology

if TYPE_CHECKING:
    from collplan.specs.programs.program import ProgramSpec

MACHINE: Final = "COLLPLAN_MACHINE"
"""Environment variable with the current machine, as JSON."""
PROGRAM_REFUSED: Final = (
    "{path}: is a program, which has several collectives; use it with compile, verify, draw, show, "
    "cost or run, or give the spec of one collective"
)
"""Message of commands that take one collective."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Suffixes of files; a machine's name with another suffix, or none, is a preset."""


@explains_calls("load_spec")
def load_spec(path: str | Path, here: Machine | None = None) -> PlanSpec:
    """Read a spec from a YAML or JSON file.

    Parameters
    ----------
    path : str or Path
        File to read: as JSON if its suffix is ``.json``, otherwise as YAML. Its
        ``machine`` may name another file, and the counts, displacements and edges of
        its collective may name ``.npy`` files. Their paths are relative to the spec.
    here : Machine, optional
        Current machine. It is used if the spec names no machine. Its network is
        used if the machine of the spec has neither a network nor a preset.

    Returns
    -------
    PlanSpec
        Validated spec.

    Raises
    ------
    SpecError
        If the file cannot be read or does not describe a plan. The message has
        one line per mistake, with the file, the field, and a remedy.
    """
    path = Path(path)
    return spec_in(read_document(path, "spec"), path, here)


def spec_in(document: Any, path: Path, here: Machine | None = None) -> PlanSpec:
    """Turn the content of a file into a spec, as `load_spec` does.

    Raises
    ------
    SpecError
        If it does not describe a plan, or a file that it names cannot be read.
    """
    return parse_spec(_opened(document, path, here), source=str(path))


def _opened(document: Any, path: Path, here: Machine | None) -> Any:
    """Return the content of a file with the content of the files that it names."""
    if not isinstance(document, Mapping):
        return document
    if "machine" in document:
        document = {**document, "machine": _open_machine(path, document["machine"])}
    if isinstance(document.get("collective"), Mapping):
        document = {**document, "collective": _open_tables(path, document["collective"])}
    if here is not None:
        document = {**document, "machine": _placed(document.get("machine", {}), here)}
    return document


@explains_calls("parse_spec")
def parse_spec(document: Any, *, source: str | None = None) -> PlanSpec:
    """Turn a mapping, as read from YAML or JSON, into a spec.

    Parameters
    ----------
    document : mapping
        Fields of the spec.
    source : str, optional
        Origin of the document, with which error messages begin.

    Raises
    ------
    SpecError
        If the document does not describe a plan.

    Examples
    --------
    >>> parse_spec({"collective": {"kind": "bcast", "cuont": 3}})
    Traceback (most recent call last):
    collplan.specs.errors.SpecError: collective.cuont: unknown key; did you mean 'count'?
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(document, Mapping):
        is_path = source is None and isinstance(document, str | Path)
        kind = "empty" if document is None else f"a {type(document).__name__}"
        raise SpecError(
            f"{prefix}the document is {kind}, not a mapping; "
            f"begin with 'collective:' and its fields"
            f"{', or read a file with load_spec' if is_path else ''}"
        )
    if is_program(document):
        raise SpecError(PROGRAM_REFUSED.format(path=source or "the document"))
    if "sweeps" in document:
        raise SpecError(f"{prefix}is a tuning table; give a spec, which has a 'collective:'")
    with explaining(before=prefix):
        return PlanSpec.model_validate(dict(document))


def is_program(document: Any) -> bool:
    """Return whether a document, as read from YAML or JSON, describes a program."""
    return isinstance(document, Mapping) and "steps" in document


def load_request(path: str | Path, here: Machine | None = None) -> PlanSpec | ProgramSpec:
    """Read a spec or a program from a YAML or JSON file; a program has ``steps``.

    Parameters
    ----------
    path, here
        As for `load_spec`.

    Raises
    ------
    SpecError
        As for `load_spec`.
    """
    path = Path(path)
    document = read_document(path, "spec")
    parse = parse_program if is_program(document) else parse_spec
    return parse(_opened(document, path, here), source=str(path))


def parse_program(document: Any, *, source: str | None = None) -> ProgramSpec:
    """Turn a mapping, as read from YAML or JSON, into a program.

    Parameters
    ----------
    document : mapping
        Fields of the program.
    source : str, optional
        Origin of the document, with which error messages begin.

    Raises
    ------
    SpecError
        If the document does not describe a program.
    """
    from collplan.specs.programs.program import ProgramSpec

    prefix = f"{source}: " if source else ""
    if not is_program(document):
        raise SpecError(f"{prefix}the document has no 'steps:'; give buffers and steps")
    with explaining(ProgramSpec, before=prefix):
        return ProgramSpec.model_validate(dict(document))


def json_schema(*, is_program: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a spec file, or of a program file, for editors."""
    if is_program:
        from collplan.specs.programs.program import ProgramSpec

        schema = ProgramSpec.model_json_schema()
    else:
        schema = PlanSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _placed(machine: Any, here: Machine) -> Any:
    """Return the machine of a spec, completed by the current machine."""
    if not isinstance(machine, Mapping) or "preset" in machine or "network" in machine:
        return machine
    known = here.model_dump(mode="json")
    return {**machine, "network": known["network"]} if machine else known


def load_machine(source: str) -> Machine:
    """Return a machine by the name of its preset, or from its file.

    Parameters
    ----------
    source : str
        Name of a preset, or path of a YAML or JSON file with the fields of a machine.

    Raises
    ------
    SpecError
        If the preset or file does not exist, or does not describe a machine.

    Examples
    --------
    >>> load_machine("knl64").cores_per_node
    64
    """
    document = _read_machine(Path(source)) if is_machine_file(source) else source
    with explaining(Machine, before="machine: "):
        return Machine.model_validate(document)


def is_machine_file(source: str) -> bool:
    """Return whether a machine is named by its file, not by a preset."""
    return Path(source).suffix in _SUFFIXES


def machine_at_hand() -> Machine | None:
    """Return the machine that the environment variable `MACHINE` describes; None if unset.

    Raises
    ------
    SpecError
        If its text does not describe a machine.
    """
    text = os.environ.get(MACHINE)
    if text is None:
        return None
    before, after = f"{MACHINE}: is no machine: ", f"; unset {MACHINE}"
    with explaining(Machine, before=before, after=after):
        return Machine.model_validate(parse_json(text, MACHINE))


def _open_machine(spec: Path, machine: Any) -> Any:
    """Return the machine of a spec, read from a file if the spec names one."""
    if not isinstance(machine, str) or Path(machine).suffix not in _SUFFIXES:
        return open_topology(spec, machine)
    return _read_machine(spec.parent / machine)


def _open_tables(spec: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a collective, with tables read from the files that it names."""
    from collplan.specs.syntax.tables import read_numbers

    return {
        key: read_numbers(
            spec.parent / value, f"{spec}: collective.{key}", are_edges=key == "graph"
        )
        if isinstance(value, str) and value.endswith(".npy")
        else value
        for key, value in fields.items()
    }


def _read_machine(path: Path) -> Any:
    document = read_document(path, "machine")
    if not isinstance(document, Mapping):
        raise SpecError(f"{path}: is not a mapping; give a machine's fields, as nodes: 4")
    if "collective" in document or "steps" in document:
        raise SpecError(f"{path}: is a spec or a program; give the file of a machine, as its own")
    return open_topology(path, document)
