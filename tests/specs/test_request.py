"""Requests: collectives, operations, choices; exact round trips."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collplan.specs import (
    Bcast,
    Machine,
    Method,
    PlanSpec,
    SpecError,
    parse_spec,
    preset_names,
)
from collplan.specs.errors import FieldError
from oracle import REGULAR


def test_root_must_be_a_rank() -> None:
    machine = Machine(ranks_per_node=4)
    assert PlanSpec(machine=machine, collective=Bcast(count=1, root=3))
    with pytest.raises(FieldError, match=r"root: 4 is not a rank.*its 4 ranks are 0 to 3"):
        PlanSpec(machine=machine, collective=Bcast(count=1, root=4))


def test_unknown_decomposition_lists_the_valid_ones() -> None:
    with pytest.raises(
        ValidationError,
        match=r"'ful_lane' is not a decomposition; did you mean 'full_lane'\? valid: flat, auto",
    ):
        PlanSpec.model_validate({"collective": {"kind": "barrier"}, "decomposition": "ful_lane"})


options = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**31), 2**31), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
choices = st.builds(
    lambda name, entries: {"name": name, "options": entries},
    st.text(min_size=1, max_size=8),
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda key: key not in ("name", "options")),
        options,
        max_size=2,
    ),
)


@given(
    kind=st.sampled_from(sorted(REGULAR)),
    count=st.integers(0, 2**40),
    datatype=st.sampled_from(["int32", "float64", "uint8"]),
    machine=st.sampled_from(["hydra", {"nodes": 2, "ranks_per_node": [2, 1]}, {}]),
    algorithms=choices,
    passes=st.lists(choices, max_size=2),
)
def test_json_and_yaml_round_trip_exactly(
    kind: str,
    count: int,
    datatype: str,
    machine: Any,
    algorithms: dict[str, Any],
    passes: list[dict[str, Any]],
) -> None:
    import yaml

    fields = {} if kind == "barrier" else {"count": count, "datatype": datatype}
    spec = parse_spec(
        {
            "machine": machine,
            "collective": {"kind": kind, **fields},
            "algorithms": algorithms,
            "passes": passes,
        }
    )
    for text in (spec.model_dump_json(), spec.to_json()):
        again = PlanSpec.model_validate_json(text)
        assert again == spec
        assert hash(again) == hash(spec)
        assert again.to_json() == spec.to_json()
    assert parse_spec(yaml.safe_load(spec.to_yaml())) == spec


def test_a_spec_is_a_machine_a_collective_and_a_method() -> None:
    fields = {"decomposition": "full_lane", "algorithms": {"node": "ring"}, "transport": "shared"}
    spec = PlanSpec(machine=Machine(nodes=2), collective=Bcast(count=3), **fields)
    assert spec.method == Method(**fields)
    assert spec.method.label == "full_lane node: ring transport=shared"
    assert Method(**spec.method.model_dump(mode="json")) == spec.method
    plain = spec.with_method(Method())
    assert plain == PlanSpec(machine=Machine(nodes=2), collective=Bcast(count=3))
    assert plain.with_method(spec.method) == spec
    assert plain.method.model_dump() == {}
    with pytest.raises(FieldError, match="no node has more than 1 ranks"):
        plain.with_method(Method(decomposition={"name": "multi_leader", "leaders": 2}))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Machine(ppn=4), "ppn: unknown key; did you mean 'ranks_per_node'?"),  # type: ignore[call-arg]
        (lambda: Machine(nodes=0), "nodes: 0 is too small; give 1 or more"),
        (
            lambda: Bcast(3),  # type: ignore[call-arg]
            "Bcast: takes fields by name; give NAME=VALUE, of kind, count, datatype, root",
        ),
        (
            lambda: parse_spec({"collective": {"kind": "barrier"}}).replace(ranks=4),
            "ranks: unknown key; did you mean 'machine: {ranks_per_node: ...}'?",
        ),
    ],
)
def test_wrong_fields_in_python_are_one_line(make: Callable[[], object], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value) == line


def test_specs_show_what_differs_from_the_defaults() -> None:
    spec = PlanSpec(machine=Machine(nodes=2), collective=Bcast(count=3), algorithms="chain")
    assert repr(spec) == (
        "PlanSpec(machine=Machine(nodes=2), collective=Bcast(count=3), "
        "algorithms=AlgorithmChoice(name='chain'))"
    )
    assert repr(Machine()) == "Machine()"
    longest = max(len(repr(Machine.model_validate(name))) for name in preset_names())
    assert longest < 500
