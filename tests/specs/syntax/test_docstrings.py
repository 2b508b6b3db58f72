"""Descriptions of fields: out of docstrings, and into the JSON Schema."""

from __future__ import annotations

from typing import Any

from collplan.specs import json_schema
from collplan.specs.syntax.docstrings import described_parameters

TWO = """Summary.

    More of it.

    Parameters
    ----------
    first : int
        Of the first,
        two lines.
    second, third
        ``Code`` in it.

        A second paragraph.

    Returns
    -------
    fourth : int
        Not a parameter.
    """


def test_parameters_are_read_up_to_the_next_section() -> None:
    assert described_parameters(TWO) == {
        "first": "Of the first, two lines.",
        "second": "`Code` in it. A second paragraph.",
        "third": "`Code` in it. A second paragraph.",
    }


def test_docstrings_without_parameters_describe_nothing() -> None:
    assert described_parameters(None) == {}
    assert described_parameters("Summary.") == {}
    assert described_parameters("Summary.\n\nParameters\n----------\n") == {}


def fields(schema: Any, place: str = "spec") -> dict[str, Any]:
    """Return every property of a schema by its place."""
    found: dict[str, Any] = {}
    if isinstance(schema, dict):
        for name, field in schema.get("properties", {}).items():
            found[f"{place}.{name}"] = field
        for key, part in schema.items():
            found |= fields(part, f"{place}/{key}")
    elif isinstance(schema, list):
        for i, part in enumerate(schema):
            found |= fields(part, f"{place}/{i}")
    return found


def test_every_field_of_the_schema_has_a_description() -> None:
    schema = {name: part for name, part in json_schema().items() if name != "properties"}
    found = fields({**schema, "anyOf": [json_schema()]})
    assert len(found) > 90
    assert not [place for place, field in found.items() if not field.get("description")]


def test_descriptions_of_a_base_class_hold_for_its_children() -> None:
    reduce = json_schema()["$defs"]["Reduce"]["properties"]
    assert reduce["datatype"]["description"] == "Type of the elements, by numpy's name."
