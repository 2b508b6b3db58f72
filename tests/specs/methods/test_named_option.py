"""Algorithms, transports and passes by name, as text or as a mapping."""

from typing import Any

import pytest

from collplan.specs import (
    AlgorithmChoice,
    Barrier,
    PassChoice,
    PlanSpec,
)


@pytest.mark.parametrize(
    "written",
    [
        {"name": "knomial", "radix": 4},
        {"name": "knomial", "options": {"radix": 4}},
        AlgorithmChoice(name="knomial", options={"radix": 4}),
    ],
)
def test_choices_can_be_written_in_several_ways(written: Any) -> None:
    spec = PlanSpec(collective=Barrier(), algorithms=written)
    assert spec.algorithms == AlgorithmChoice(name="knomial", options={"radix": 4})
    assert str(spec.algorithms) == "knomial(radix=4)"


def test_choices_are_hashable_values() -> None:
    first = PassChoice(name="segment", options={"max_bytes": "64KiB", "shape": [1, 2]})
    again = PassChoice.model_validate({"shape": (1, 2), "max_bytes": "64KiB", "name": "segment"})
    assert first == again
    assert hash(first) == hash(again)
    assert first.options["max_bytes"] == "64KiB"
