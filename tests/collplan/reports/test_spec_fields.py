"""Fields of specs in words."""

from __future__ import annotations

import pytest

from collplan.reports.spec_fields import MAX_DEFAULT, Field, definitions, value_of
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.machines.machine import Machine
from collplan.specs.machines.network import Network
from collplan.specs.methods.decomposition import Decomposition


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Spec", PlanSpec),
        ("Network", Network),
        ("Decomposition", Decomposition),
        *((model.__name__, model) for kind, model in COLLECTIVES.items()),
    ],
)
def test_every_field_of_a_model_is_there(name: str, model: type[PlanSpec]) -> None:
    one = definitions()[name]
    assert {field.name for field in one.fields} == set(model.model_fields)
    assert one.about


def test_a_machine_can_be_a_name_or_a_file_and_has_a_preset() -> None:
    one = definitions()["Machine"]
    assert {field.name for field in one.fields} == {"preset", *Machine.model_fields}
    assert any("hydra" in text for text in one.short)
    assert any(text.startswith("text: a file") for text in one.short)


def test_fields_that_must_be_given_have_no_default() -> None:
    fields = {field.name: field for field in definitions()["Bcast"].fields}
    assert fields["count"].default == ""
    assert fields["root"] == Field(
        "root",
        "whole number from 0 to 65535",
        "0",
        "Rank from which the data start, or at which they end.",
    )


def test_long_defaults_are_left_to_their_types() -> None:
    fields = [field for one in definitions().values() for field in one.fields]
    assert len(fields) > 90
    assert all(len(field.default) <= MAX_DEFAULT for field in fields)
    assert all(field.meaning.strip() and field.value for field in fields)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["a", 2]}, "a, 2"),
        ({"const": "bcast"}, "bcast"),
        ({"oneOf": [{"type": "null"}, {"type": "null"}, {"type": "string"}]}, "null or text"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "mapping to true, false"),
        ({"type": "object"}, "mapping"),
        ({"type": "array"}, "list of any value"),
        ({"type": "number", "minimum": 0, "maximum": 2.5}, "number from 0 to 2.5"),
        ({"type": "integer", "minimum": 0}, "whole number"),
    ],
)
def test_values_have_words(schema: dict[str, object], words: str) -> None:
    assert value_of(schema) == words
