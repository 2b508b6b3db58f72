"""Reduction operations: MPI's own on numbers, registered ones, and unknown names."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.collective.operations import (
    BUILTIN_OPERATIONS,
    UnknownOperationError,
    get_operation,
    register_operation,
)
from collplan.specs.errors import CollplanError

LEFT, RIGHT = np.array([0, 1, 6, 7]), np.array([5, 3, 3, 0])
RESULTS = {
    "sum": [5, 4, 9, 7],
    "prod": [0, 3, 18, 0],
    "max": [5, 3, 6, 7],
    "min": [0, 1, 3, 0],
    "land": [0, 1, 1, 0],
    "lor": [1, 1, 1, 1],
    "lxor": [1, 0, 0, 1],
    "band": [0, 1, 2, 0],
    "bor": [5, 3, 7, 7],
    "bxor": [5, 2, 5, 7],
}


@pytest.mark.quick
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("place", ["apart", "left", "right"])
def test_results_may_replace_an_operand(name: str, place: str) -> None:
    left, right = LEFT.copy(), RIGHT.copy()
    out = {"apart": np.zeros(4, dtype=int), "left": left, "right": right}[place]
    get_operation(name).apply(left, right, out)
    assert out.tolist() == RESULTS[name]


def test_all_but_the_locating_operations_are_in_the_table_above() -> None:
    assert {*BUILTIN_OPERATIONS} == {*RESULTS, "minloc", "maxloc"}
    assert all(get_operation(name).commutative for name in BUILTIN_OPERATIONS)


def test_an_unknown_operation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownOperationError, match="'mean' is not registered; use one of sum, "):
        get_operation("mean")


def test_own_operations_are_found_by_name_and_mpis_are_not_replaced() -> None:
    def first(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        out[:] = left

    made = register_operation("first of two", first, commutative=False)
    assert get_operation("first of two") is made
    with pytest.raises(CollplanError, match="sum"):
        register_operation("sum", first, commutative=True)
