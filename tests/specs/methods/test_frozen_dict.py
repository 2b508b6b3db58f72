"""Options and roles in specs, which nobody can change afterwards."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from collplan.specs import PlanSpec
from collplan.specs.methods.frozen_dict import FrozenDict

SPEC = PlanSpec.model_validate(
    {
        "machine": {"nodes": 2, "ranks_per_node": 2},
        "collective": {"kind": "allreduce", "count": 8},
        "decomposition": "full_lane",
        "algorithms": {"lane": {"name": "recursive_multiplying", "radix": 4}},
        "passes": [{"name": "segment", "max_bytes": 16}],
        "transport": {"node": "shared"},
    }
)


def test_options_and_roles_of_specs_do_not_change() -> None:
    before = hash(SPEC)
    mappings: list[Any] = [
        SPEC.algorithms.roles,
        SPEC.algorithms.roles["lane"].options,
        SPEC.passes[0].options,
        SPEC.transport.roles,
    ]
    for mapping in mappings:
        for change in (
            lambda it: it.__setitem__("radix", 2),
            lambda it: it.update(radix=2),
            lambda it: it.pop(next(iter(it))),
            lambda it: it.popitem(),
            lambda it: it.setdefault("radix", 2),
            lambda it: it.clear(),
            lambda it: it.__delitem__(next(iter(it))),
            lambda it: it.__ior__({"radix": 2}),
        ):
            with pytest.raises(TypeError, match="specs are immutable; make another one"):
                change(mapping)
    assert hash(SPEC) == before


def test_what_is_given_is_copied() -> None:
    options = {"name": "segment", "max_bytes": 16}
    choice = SPEC.replace(passes=[options]).passes[0]
    options["max_bytes"] = 8
    assert choice.options == {"max_bytes": 16}


def test_copies_are_equal() -> None:
    for again in (copy.deepcopy(SPEC), pickle.loads(pickle.dumps(SPEC))):
        assert again == SPEC
        assert hash(again) == hash(SPEC)
    assert type(pickle.loads(pickle.dumps(FrozenDict(a=1)))) is FrozenDict
