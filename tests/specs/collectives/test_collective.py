"""Collectives: fields, traits, operations and datatypes."""

from typing import Any

import pytest
from pydantic import ValidationError

from collplan.planner.collective.semantics import postcondition
from collplan.specs import (
    COLLECTIVES,
    Allreduce,
    Bcast,
    Operation,
    SpecError,
    parse_spec,
)
from collplan.specs.collectives.collective_base import register_collective
from collplan.specs.errors import FieldError

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
    "gatherv",
    "scatterv",
    "allgatherv",
    "reduce_scatter",
    "alltoallv",
}


ROOTED = {"bcast", "gather", "scatter", "reduce", "gatherv", "scatterv"}
WITH_OP = {"reduce", "allreduce", "reduce_scatter_block", "scan", "exscan", "reduce_scatter"}


def counted(kind: str, n_ranks: int) -> dict[str, Any]:
    """Return the count or counts of a kind: 3 elements per block."""
    if kind == "barrier":
        return {}
    graph = {"graph": {"grid": [n_ranks], "periodic": True}} if COLLECTIVES[kind].has_edges else {}
    if "count" in COLLECTIVES[kind].model_fields:
        return {"count": 3, **graph}
    if kind == "neighbor_alltoallv":
        return {"counts": [3], **graph}
    counts = [[3] * n_ranks] * n_ranks if kind == "alltoallv" else [3] * n_ranks
    return {"counts": counts, **graph}


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
        document |= {**counted(kind, 1), "datatype": "int32"}
    collective = parse_spec({"collective": document}).collective
    assert collective.kind == kind
    assert collective.is_rooted == (kind in ROOTED)
    assert collective.has_op == (kind in WITH_OP)
    assert collective.in_place is False
    assert collective.itemsize == (1 if kind == "barrier" else 4)
    n_blocks = {"barrier": 0, "neighbor_alltoallv": 2}.get(kind, 1)
    assert collective.count == 3 * n_blocks


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
    with pytest.raises(FieldError, match=r"'affine' is not a predefined operation.*sum, prod"):
        Operation(name="affine")


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_traits_agree_with_what_is_promised(kind: str) -> None:
    """Sizes of results, from the traits, are those that the semantics state."""
    model, n_ranks = COLLECTIVES[kind], 4
    fields = counted(kind, n_ranks)
    for in_place in (False, True) if "in_place" in model.model_fields else (None,):
        collective = model(**fields, **({} if in_place is None else {"in_place": in_place}))
        contents = postcondition(collective, n_ranks)
        for rank in range(n_ranks):
            own = contents.rank == rank
            most = int((contents.offset + contents.count)[own].max(initial=0))
            assert collective.result_count(rank, n_ranks) == (most or None), (rank, in_place)
    assert (collective.root is None) == (not model.is_rooted)
    assert (collective.op is None) == (not model.has_op)
    # Blocks in both directions of a grid have one count.
    count = 8 if kind == "neighbor_alltoallv" else 5
    assert collective.with_count(count).count == (count if model.has_data else 0)


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(SpecError, match="there is a 'bcast' already; give yours another name"):
        register_collective(Bcast)
