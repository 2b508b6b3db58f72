"""Pairs of a value and an index: datatypes, minloc and maxloc, from specs to both MPIs."""

from __future__ import annotations

import ctypes
import re
from itertools import permutations

import numpy as np
import pytest
from pydantic import ValidationError

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.collective.operations import get_operation
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.formats.text import to_text
from collplan.specs import Allreduce, Bcast, Operation, numpy_dtype
from collplan.specs.collectives.predefined import PAIRS
from oracle import REGULAR, check_result, make_spec

VALUES = {
    "float_int": ctypes.c_float,
    "double_int": ctypes.c_double,
    "long_int": ctypes.c_long,
    "int_int": ctypes.c_int,
    "short_int": ctypes.c_short,
    "long_double_int": ctypes.c_longdouble,
}


def pairs(*entries: tuple[float, int], datatype: str = "double_int") -> np.ndarray:
    return np.array(list(entries), numpy_dtype(datatype))


def combined(op: str, left: np.ndarray, right: np.ndarray) -> list[tuple[float, int]]:
    out = np.empty_like(left)
    get_operation(op).apply(left, right, out)
    return out.tolist()


@pytest.mark.parametrize("datatype", PAIRS)
def test_a_pair_lies_in_memory_as_c_lays_its_struct(datatype: str) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("value", VALUES[datatype]), ("index", ctypes.c_int))

    assert set(VALUES) == set(PAIRS)
    dtype = numpy_dtype(datatype)
    assert dtype.itemsize == ctypes.sizeof(Pair)
    assert dtype.fields is not None
    assert dtype.fields["index"][1] == Pair.index.offset
    assert dtype["value"].itemsize == ctypes.sizeof(VALUES[datatype])
    assert Bcast(count=3, datatype=datatype).itemsize == dtype.itemsize
    assert compile_plan(make_spec("bcast", "auto", 2, count=3, datatype=datatype)).itemsize == (
        dtype.itemsize
    )


@pytest.mark.parametrize("datatype", PAIRS)
def test_ties_take_the_lower_index(datatype: str) -> None:
    left = pairs((1, 9), (2, 9), (3, 4), (3, 5), (3, 4), datatype=datatype)
    right = pairs((2, 1), (1, 1), (3, 5), (3, 4), (3, 4), datatype=datatype)
    ties = [(3, 4), (3, 4), (3, 4)]
    assert combined("minloc", left, right) == [(1, 9), (1, 1), *ties]
    assert combined("maxloc", left, right) == [(2, 1), (2, 9), *ties]


@pytest.mark.parametrize("op", ["minloc", "maxloc"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_result_may_be_an_operand(op: str, side: str) -> None:
    given = {"left": pairs((1, 9), (2, 9), (3, 4)), "right": pairs((2, 1), (1, 1), (3, 2))}
    want = combined(op, given["left"], given["right"])
    get_operation(op).apply(given["left"], given["right"], given[side])
    assert given[side].tolist() == want


@pytest.mark.parametrize("op", ["minloc", "maxloc"])
def test_order_does_not_matter_even_with_nan(op: str) -> None:
    operands = [pairs((1, 5)), pairs((np.nan, 7)), pairs((3, 1)), pairs((np.nan, 6))]
    for a, b, c, d in permutations(operands):
        total = np.empty_like(a)
        get_operation(op).apply(a, b, total)
        for other in (c, d):
            get_operation(op).apply(total, other, total)
        assert np.isnan(total["value"][0])
        assert total["index"][0] == 6


@pytest.mark.parametrize("op", ["minloc", "maxloc"])
def test_reference_finds_what_python_finds(op: str) -> None:
    spec = make_spec("scan", "auto", 5, count=40, datatype="int_int", op=op)
    inputs = make_inputs(spec.collective, 5)
    sign = 1 if op == "minloc" else -1
    columns = list(zip(*(part.tolist() for part in inputs), strict=True))
    for rank, result in enumerate(expected(spec.collective, inputs)):
        assert result is not None
        heads = [column[: rank + 1] for column in columns]
        best = [min(head, key=lambda pair: (sign * pair[0], pair[1])) for head in heads]
        assert result.tolist() == best
    # The inputs tell a wrong tie-break from a right one: the first rank is not always the lowest.
    first = [min(column, key=lambda pair: sign * pair[0]) for column in columns]
    assert first != best


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"datatype": "float64", "op": "minloc"},
            "op minloc needs a pair datatype, not float64; use one of float_int, double_int, "
            "long_int, int_int, short_int, long_double_int or op min",
        ),
        ({"datatype": "bool", "op": "maxloc"}, "not bool; use one of .* or op max"),
        (
            {"datatype": "double_int"},
            "op sum is not defined on the pair datatype double_int; "
            "use one of minloc, maxloc or another datatype",
        ),
        ({"datatype": "int_int", "op": "max"}, "op max is not defined on the pair .* int_int"),
        ({"datatype": "int_int", "op": "band"}, "op band is not defined on the pair .* int_int"),
        ({"datatype": "int_int", "op": "land"}, "op land is not defined on the pair .* int_int"),
        ({"datatype": "2int", "op": "minloc"}, "'2int' is not a datatype; did you mean 'int_int'"),
    ],
)
def test_wrong_combinations_are_one_clear_line(fields: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        Allreduce.model_validate({"count": 1, **fields})
    (error,) = caught.value.errors()
    assert "\n" not in error["msg"]
    assert re.search(words, error["msg"])


def test_pairs_take_operations_of_ones_own() -> None:
    own = Operation(name="closest", commutative=True)
    assert Allreduce(count=1, datatype="float_int", op=own).op is own
    assert Operation.model_validate("minloc").commutative


@pytest.mark.many
@pytest.mark.parametrize("datatype", PAIRS)
@pytest.mark.parametrize("op", ["minloc", {"name": "maxloc", "commutative": False}])
def test_every_collective_computes_with_pairs(datatype: str, op: object) -> None:
    for kind in REGULAR:
        for in_place in (False, True):
            spec = make_spec(
                kind, "auto", 5, count=7, datatype=datatype, op=op, in_place=in_place, root=2
            )
            check_result(compile_plan(spec))


def test_padding_is_sent_and_priced() -> None:
    machine = {"nodes": 2, "ranks_per_node": 2}
    prices = []
    for datatype, op in (("double_int", "minloc"), ("complex128", "sum")):
        spec = make_spec("allreduce", "auto", 4, machine, count=64, datatype=datatype, op=op)
        prices.append(simulate(compile_plan(spec), spec.machine.network).makespan_s)
    assert prices[0] == prices[1] > 0


def test_pairs_are_named_in_the_text() -> None:
    spec = make_spec("allreduce", "ring", 3, count=6, datatype="short_int", op="maxloc")
    head = to_text(compile_plan(spec)).splitlines()[:2]
    assert head[0] == "ring allreduce of 6 short_int, maxloc, 3 ranks"
    assert head[1].endswith("8 bytes per element")
