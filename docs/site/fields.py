"""The page of the reference that is generated from the JSON Schema of specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from collplan.specs import json_schema

MAX_DEFAULT = 40
"""Characters of a default that a table shows; longer ones are in the table of their own type."""


def fields_page() -> str:
    """Return the page with a table for every mapping that a spec can contain."""
    schema = json_schema()
    return "\n".join(_page(schema))


def _page(schema: dict[str, Any]) -> Iterator[str]:
    yield "# Fields of spec files\n"
    yield (
        "This page is generated from the [JSON Schema](../spec.schema.json) of specs, which "
        "`collplan schema` writes. Another page explains [how spec files are read](../specs.md). "
        "A field without a default must be given."
    )
    yield "\n## Spec\n"
    yield from _table(schema)
    for name, part in schema["$defs"].items():
        yield f"\n## {name}\n"
        yield from _definition(part)
    yield ""


def _definition(part: dict[str, Any]) -> Iterator[str]:
    yield summary(part.get("description", "")) + "\n"
    forms = part.get("anyOf", [part])
    for form in forms:
        if "properties" in form:
            if form is not part and form.get("description"):
                yield summary(form["description"]) + "\n"
            yield from _table(form)
        elif form is not part:
            yield f"It can be {type_of(form)}.\n"


def _table(form: dict[str, Any]) -> Iterator[str]:
    yield "| field | value | default | meaning |\n|---|---|---|---|"
    for name, field in form["properties"].items():
        default = _default(field) if name not in form.get("required", ()) else ""
        yield f"| `{name}` | {_cell(type_of(field))} | {default} | {_cell(field['description'])} |"
    yield ""


def summary(text: str) -> str:
    """Return a docstring's text up to its first section."""
    return text.split("\n\nParameters\n")[0].split("\n\nExamples\n")[0].replace("``", "`")


def type_of(field: dict[str, Any]) -> str:
    """Return in words which values a field of a schema takes."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(type_of(one) for one in field[key]))
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        return f"list of {type_of(field.get('items', {}))}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"mapping to {type_of(inner)}" if isinstance(inner, dict) else "mapping"
    return _simple(field)


def _simple(field: dict[str, Any]) -> str:
    kind = {"integer": "whole number", "boolean": "`true`, `false`", "null": "`null`"}.get(
        field.get("type", ""), field.get("type", "any value")
    )
    if field.get("type") not in ("integer", "number"):
        about = field.get("description", "").rstrip(".")
        return f"{kind} ({about[0].lower()}{about[1:]})" if about and "pattern" in field else kind
    least, most = field.get("minimum"), field.get("maximum")
    if least is None or most is None:
        return kind
    return f"{kind} from {least} to {most}"


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return ""
    text = json.dumps(field["default"])
    return f"`{text}`" if len(text) <= MAX_DEFAULT else "see its type"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
