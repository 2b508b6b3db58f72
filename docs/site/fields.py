"""The page of the reference that is generated from the JSON Schema of specs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collplan.reports.spec_fields import Field, definitions

HEAD = """# Fields of spec files

This page is generated from the [JSON Schema](../spec.schema.json) of specs. `collplan schema`
writes the schema, and `collplan help spec` prints these tables. Another page explains
[how spec files are read](../specs.md). A field without a default must be given, unless another
field stands for it.
"""


def fields_page() -> str:
    """Return the page with a table for every type of values that a spec can contain."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield HEAD
    found = definitions()
    types = re.compile(rf"\b({'|'.join(found)})\b")
    for name, one in found.items():
        yield f"## {name}\n"
        yield from (f"{text}\n" for text in one.about)
        yield from (f"It can be {_linked(text, types)}.\n" for text in one.short)
        if one.fields:
            yield "| field | value | default | meaning |\n|---|---|---|---|"
            yield from (_row(field, types) for field in one.fields)
            yield ""


def _row(field: Field, types: re.Pattern[str]) -> str:
    default = f"`{field.default}`" if field.default.startswith(tuple('"{[tfn0123456789')) else ""
    cells = (f"`{field.name}`", _linked(field.value, types), default or field.default)
    return f"| {' | '.join(map(_cell, (*cells, field.meaning)))} |"


def _linked(text: str, types: re.Pattern[str]) -> str:
    """Return the words of a value with a link at every name of a type."""
    escaped = re.sub(r"([*_<>])", r"\\\1", text)
    return types.sub(lambda name: f"[{name[0]}](#{name[0].lower()})", escaped)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
