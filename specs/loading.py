"""Read specs from files; every mistake becomes one line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel, ValidationError

from specs.choice import CHOICE_TAG, ROLES_TAG
from specs.collective import COLLECTIVES
from specs.errors import SpecError
from specs.machine import Machine
from specs.request import PlanSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from yaml.nodes import Node

_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Of files; anything else that names a machine is a preset."""


def load_spec(path: str | Path, here: Machine | None = None) -> PlanSpec:
    """Read a spec from a YAML or JSON file.

    Parameters
    ----------
    path : str or Path
        A ``.json`` file is read as JSON, any other as YAML. Its ``machine``
        may name a file in turn, relative to the spec.
    here : Machine, optional
        The machine at hand: all of it where the spec names none, its network
        where the spec's machine has none of its own.

    Returns
    -------
    PlanSpec
        The spec, checked.

    Raises
    ------
    SpecError
        If the file can't be read or does not describe a plan; one line that
        names the file, the field and the way out.
    """
    path = Path(path)
    document = read_document(path, "spec")
    if isinstance(document, Mapping) and "machine" in document:
        document = {**document, "machine": _open_machine(path, document["machine"])}
    if here is not None and isinstance(document, Mapping):
        document = {**document, "machine": _placed(document.get("machine", {}), here)}
    return parse_spec(document, source=str(path))


def parse_spec(document: Any, *, source: str | None = None) -> PlanSpec:
    """Turn a mapping, as YAML or JSON give it, into a spec.

    Parameters
    ----------
    document : mapping
        The spec's fields.
    source : str, optional
        Where the document comes from; error messages begin with it.

    Raises
    ------
    SpecError
        If the document does not describe a plan.

    Examples
    --------
    >>> parse_spec({"collective": {"kind": "bcast", "cuont": 3}})
    Traceback (most recent call last):
    specs.errors.SpecError: collective.cuont: unknown key; did you mean 'count'? (and 1 more)
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(document, Mapping):
        kind = "empty" if document is None else f"a {type(document).__name__}"
        raise SpecError(
            f"{prefix}the document is {kind}, not a mapping; "
            f"begin with 'collective:' and its fields"
        )
    try:
        return PlanSpec.model_validate(dict(document))
    except ValidationError as error:
        raise SpecError(prefix + explain(error)) from None


def explain(error: ValidationError, model: type[BaseModel] = PlanSpec) -> str:
    """Put a failed validation of a model into one line: field, problem, way out."""
    # A misspelt key makes the right one missing: the misspelling is what to report.
    details = sorted(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    line = _explain_one(details[0], model) + more
    return " ".join(line.split())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec file, for editors."""
    schema = PlanSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _placed(machine: Any, here: Machine) -> Any:
    """Return a spec's machine with what it leaves open taken from the machine at hand."""
    if not isinstance(machine, Mapping) or "preset" in machine or "network" in machine:
        return machine
    known = here.model_dump(mode="json")
    return {**machine, "network": known["network"]} if machine else known


def read_document(path: Path, what: str) -> Any:
    """Return what a YAML or JSON file holds, whatever it describes.

    Raises
    ------
    SpecError
        If the file can't be read; the message calls it `what`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; give the path of a {what}") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}; give a {what} file") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not text; give a {what} in YAML or JSON") from None
    return _parse_text(path, text)


def load_machine(source: str) -> Machine:
    """Return a machine by its preset's name, or from its file.

    Parameters
    ----------
    source : str
        A preset, or the path of a YAML or JSON file with a machine's fields.

    Raises
    ------
    SpecError
        If there is no such preset or file, or it does not hold a machine.

    Examples
    --------
    >>> load_machine("knl64").cores_per_node
    64
    """
    is_file = Path(source).suffix in _SUFFIXES
    document = _read_machine(Path(source)) if is_file else source
    try:
        return Machine.model_validate(document)
    except ValidationError as error:
        raise SpecError(f"machine: {explain(error)}") from None


def _open_machine(spec: Path, machine: Any) -> Any:
    """Return the machine of a spec, read from its file where it names one."""
    if not isinstance(machine, str) or Path(machine).suffix not in _SUFFIXES:
        return machine
    return _read_machine(spec.parent / machine)


def _read_machine(path: Path) -> Any:
    document = read_document(path, "machine")
    if not isinstance(document, Mapping):
        raise SpecError(f"{path}: is not a mapping; give a machine's fields, as nodes: 4")
    return document


def _parse_text(path: Path, text: str) -> Any:
    try:
        return json.loads(text) if path.suffix == ".json" else _parse_yaml(path, text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: line {error.lineno}: {error.msg}; mend the JSON") from None
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply; a spec has a few levels") from None


def _parse_yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated_keys(path, node)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise SpecError(f"{path}: {where}{problem}; mend the YAML") from None


def _refuse_repeated_keys(path: Path, root: Node) -> None:
    """Raise where a mapping has a key twice: YAML would silently take the last."""
    import yaml

    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                pending.append(value)
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    line = key.start_mark.line + 1
                    raise SpecError(f"{path}: line {line}: {key.value} is there twice; keep one")
                keys.add(str(key.value))


def _explain_one(detail: ErrorDetails, model: type[BaseModel]) -> str:
    where, kind = detail["loc"], detail["type"]
    value, context = detail["input"], detail.get("ctx", {})
    shown = ".".join(str(part) for part in _without_kind(where))
    if kind == "value_error":
        message = str(context["error"])
    elif kind == "extra_forbidden":
        message = _explain_unknown_key(where, model)
    elif kind == "missing":
        message = "is missing; give it a value"
    elif kind == "union_tag_not_found":
        shown, message = f"{shown}.kind", f"is missing; valid: {', '.join(COLLECTIVES)}"
    elif kind == "union_tag_invalid":
        shown, message = f"{shown}.kind", _explain_unknown_kind(str(context["tag"]))
    elif kind == "greater_than_equal":
        least = context["ge"]
        problem = "is negative" if least == 0 else "is too small"
        message = f"{value} {problem}; give {least} or more"
    elif kind == "less_than_equal":
        message = f"{value} is too large; give {context['le']} or less"
    elif kind == "tuple_type":
        message = f"{value!r} is not a list; give one, as in [{value!r}]"
    elif kind in ("int_type", "int_parsing", "int_from_float"):
        message = f"{value!r} is not a whole number; give one"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        message = f"{value!r} is not a mapping; give its fields as 'key: value'"
    else:
        text = detail["msg"]
        message = f"{value!r} does not fit; {text[0].lower()}{text[1:]}"
    return f"{shown}: {message}" if shown else message


def _without_kind(where: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Drop the unions' tags, which pydantic puts behind ``collective`` and ``algorithms``."""
    if len(where) > 1 and where[0] == "collective" and where[1] in COLLECTIVES:
        return where[:1] + where[2:]
    if len(where) > 1 and where[0] == "algorithms" and where[1] in (CHOICE_TAG, ROLES_TAG):
        return where[:1] + tuple(part for part in where[2:] if part != ROLES_TAG)
    return where


def _explain_unknown_kind(kind: str) -> str:
    close = difflib.get_close_matches(kind, COLLECTIVES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{kind!r} is no collective; {hint}valid: {', '.join(COLLECTIVES)}"


def _explain_unknown_key(where: tuple[int | str, ...], model: type[BaseModel]) -> str:
    valid = _valid_keys(where[:-1], model)
    close = difflib.get_close_matches(str(where[-1]), valid, n=1)
    if close:
        return f"unknown key; did you mean {close[0]!r}?"
    return f"unknown key; valid: {', '.join(valid)}"


def _valid_keys(where: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    for part in where:
        if part in COLLECTIVES:
            model = COLLECTIVES[str(part)]
        elif (field := model.model_fields.get(str(part))) is not None:
            # Of a list or a mapping of models, the one below it.
            for annotation in (field.annotation, *get_args(field.annotation)):
                if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                    model = annotation
    extra = ["preset"] if model.__name__ == "Machine" else []
    return [*extra, *model.model_fields]
