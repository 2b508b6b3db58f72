"""Descriptions of the fields of spec files from the JSON Schema, for help texts and the site."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collplan.specs import json_schema

MAX_DEFAULT: Final = 40
"""Length of the longest default that is shown; longer ones are the defaults of their types."""
_TYPES: Final = {
    "integer": "whole number",
    "string": "text",
    "null": "null",
    "boolean": "true, false",
}
_SECTION: Final = re.compile(r"\n\n\w+\n-{3,}\n.*", re.DOTALL)


@dataclass(frozen=True)
class Field:
    """A field of a mapping in a spec.

    Parameters
    ----------
    name : str
        Key of the field.
    value : str
        Description of the valid values.
    default : str
        Default value; empty if the field is required.
    meaning : str
        Description of the field.
    """

    name: str
    value: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Definition:
    """A type of values in a spec.

    Parameters
    ----------
    about : tuple of str
        Descriptions of the type.
    short : tuple of str
        Descriptions of the values that can replace a mapping.
    fields : tuple of Field
        Fields of a mapping.
    """

    about: tuple[str, ...]
    short: tuple[str, ...]
    fields: tuple[Field, ...]


def definitions() -> dict[str, Definition]:
    """Return the types of values by name; `Spec` is the type of a whole file."""
    schema = json_schema()
    return {name: _define(part) for name, part in {"Spec": schema, **schema["$defs"]}.items()}


def _define(part: Mapping[str, Any]) -> Definition:
    forms = part.get("anyOf", [part])
    described = (one for one in (part, *forms) if one is part or "properties" in one)
    about = [one["description"] for one in described if "description" in one]
    return Definition(
        tuple(dict.fromkeys(_SECTION.sub("", text).replace("``", "`") for text in about)),
        tuple(_short(form) for form in forms if form is not part and "properties" not in form),
        tuple(field for form in forms for field in _fields(form)),
    )


def _short(form: Mapping[str, Any]) -> str:
    about = str(form.get("description", "")).rstrip(".")
    return f"{value_of(form)}: {about[0].lower()}{about[1:]}" if about else value_of(form)


def _fields(form: Mapping[str, Any]) -> Iterator[Field]:
    for name, schema in form.get("properties", {}).items():
        default = "" if name in form.get("required", ()) else _default(schema)
        yield Field(name, value_of(schema), default, schema.get("description", ""))


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return ""
    text = json.dumps(schema["default"])
    return text if len(text) <= MAX_DEFAULT else "as its type"


def value_of(schema: Mapping[str, Any]) -> str:
    """Return a description of the values that a part of the schema allows.

    Parameters
    ----------
    schema : mapping
        Part of the JSON Schema.

    Examples
    --------
    >>> value_of({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 8}})
    'list of whole number from 1 to 8'
    >>> value_of({"anyOf": [{"$ref": "#/$defs/Machine"}, {"type": "null"}]})
    'Machine or null'
    """
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(value_of, schema[key])))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {value_of(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"mapping to {value_of(inner)}" if isinstance(inner, dict) else "mapping"
    least, most = schema.get("minimum"), schema.get("maximum")
    limits = "" if least is None or most is None else f" from {least} to {most}"
    return f"{_TYPES.get(kind, kind)}{limits}"
