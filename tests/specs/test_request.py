"""Requests: collectives, operations, choices; exact round trips."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collplan.planner.collective.semantics import postcondition
from collplan.specs import (
    COLLECTIVES,
    AlgorithmChoice,
    Allreduce,
    Barrier,
    Bcast,
    Machine,
    Method,
    Operation,
    PassChoice,
    PlanSpec,
    SpecError,
    parse_spec,
)
from collplan.specs.collective import register_collective

IN_PLACE = {
    "gather",
    "scatter",
    "reduce",
    "allgather",
    "allreduce",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "alltoall",
}
ROOTED = {"bcast", "gather", "scatter", "reduce"}
WITH_OP = {"reduce", "allreduce", "reduce_scatter_block", "scan", "exscan"}


def test_fields_are_those_mpi_has() -> None:
    fields = {kind: set(model.model_fields) for kind, model in COLLECTIVES.items()}
    assert {kind for kind, names in fields.items() if "in_place" in names} == IN_PLACE
    assert {kind for kind, names in fields.items() if "root" in names} == ROOTED
    assert {kind for kind, names in fields.items() if "op" in names} == WITH_OP
    assert fields["barrier"] == {"kind"}


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_common_properties_agree_with_fields(kind: str) -> None:
    document: dict[str, Any] = {"kind": kind}
    if kind != "barrier":
        document |= {"count": 3, "datatype": "int32"}
    collective = parse_spec({"collective": document}).collective
    assert collective.kind == kind
    assert collective.is_rooted == (kind in ROOTED)
    assert collective.has_op == (kind in WITH_OP)
    assert collective.in_place is False
    assert collective.itemsize == (1 if kind == "barrier" else 4)
    assert collective.count == (0 if kind == "barrier" else 3)


def test_in_place_is_seen() -> None:
    assert Allreduce(count=1, in_place=True).in_place


@pytest.mark.parametrize(
    ("op", "datatype", "words"),
    [
        ("band", "float64", "op band needs an integer or bool datatype, not float64"),
        ("land", "complex64", "op land needs an integer"),
        ("max", "complex128", "op max needs an ordered datatype"),
        ("sum", "bool", "op sum is not defined on bool"),
    ],
)
def test_operations_are_checked_against_the_datatype(op: str, datatype: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Allreduce.model_validate({"count": 1, "datatype": datatype, "op": op})


@pytest.mark.parametrize(("op", "datatype"), [("band", "int8"), ("lxor", "bool"), ("max", "uint8")])
def test_legal_pairs_of_operation_and_datatype(op: str, datatype: str) -> None:
    assert Allreduce.model_validate({"count": 1, "datatype": datatype, "op": op}).op.name == op


def test_own_operations_must_say_whether_they_commute() -> None:
    assert Operation.model_validate("bxor").commutative
    assert not Operation(name="sum", commutative=False).commutative
    assert not Operation(name="affine", commutative=False).is_builtin
    with pytest.raises(ValidationError, match=r"'affine' is no predefined operation.*sum, prod"):
        Operation(name="affine")


def test_root_must_be_a_rank() -> None:
    machine = Machine(ranks_per_node=4)
    assert PlanSpec(machine=machine, collective=Bcast(count=1, root=3))
    with pytest.raises(ValidationError, match=r"root: 4 is not a rank.*its 4 ranks are 0 to 3"):
        PlanSpec(machine=machine, collective=Bcast(count=1, root=4))


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


def test_unknown_decomposition_lists_the_valid_ones() -> None:
    with pytest.raises(ValidationError, match="'ful_lane' is no decomposition; valid: flat, auto"):
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
    kind=st.sampled_from(sorted(COLLECTIVES)),
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
    with pytest.raises(ValidationError, match="no node has more than 1 ranks"):
        plain.with_method(Method(decomposition={"name": "multi_leader", "leaders": 2}))


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_traits_agree_with_what_is_promised(kind: str) -> None:
    """Sizes of results, from the traits, are those that the semantics state."""
    model, n_ranks = COLLECTIVES[kind], 4
    fields = {"count": 3} if model.has_data else {}
    for in_place in (False, True) if "in_place" in model.model_fields else (None,):
        collective = model(**fields, **({} if in_place is None else {"in_place": in_place}))
        contents = postcondition(collective, n_ranks)
        for rank in range(n_ranks):
            own = contents.rank == rank
            most = int((contents.offset + contents.count)[own].max(initial=0))
            assert collective.result_count(rank, n_ranks) == (most or None), (rank, in_place)
    assert (collective.root is None) == (not model.is_rooted)
    assert (collective.op is None) == (not model.has_op)
    assert collective.with_count(5).count == (5 if model.has_data else 0)


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(SpecError, match="there is a 'bcast' already; give yours another name"):
        register_collective(Bcast)
