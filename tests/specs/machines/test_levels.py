"""Levels by name, in specs and in messages."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from collplan.specs.machines.levels import NETWORK_LEVELS, Level, noun_of


def test_names_of_levels_and_the_rack_of_a_switch():
    levels = TypeAdapter(Level)
    for name in ("node", "numa", *NETWORK_LEVELS):
        assert levels.validate_python(name) == name
    assert levels.validate_python("rack") == "switch"
    with pytest.raises(ValidationError):
        levels.validate_python("cell")


def test_messages_spell_out_domains():
    assert [noun_of(level) for level in ("node", "numa", "group")] == [
        "node", "NUMA domain", "group",
    ]  # fmt: skip
