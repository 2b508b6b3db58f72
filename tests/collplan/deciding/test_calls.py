"""Signatures of calls: what plans can run, and the collective that they plan."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.deciding.calls import CollectiveCall, VectorCall, unit_of


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (CollectiveCall("bcast", 8), None),
        (CollectiveCall("bcast", 0), "nothing to move"),
        (CollectiveCall("barrier", 0), None),
        (CollectiveCall("reduce", 8), "the operation is not one that plans know"),
        (CollectiveCall("reduce", 8, op="sum"), "the datatype is not one that plans reduce"),
        (CollectiveCall("reduce", 8, op="sum", element="bool"), "sum is not defined on bool"),
        (CollectiveCall("reduce", 8, op="sum", element="int64"), None),
    ],
)
def test_calls_without_a_plan_say_why(call: CollectiveCall, why: str | None) -> None:
    assert call.why_unplanned() == why


def test_only_operations_that_round_may_differ_between_runs() -> None:
    found = {
        (op, element): CollectiveCall("allreduce", 8, op=op, element=element).rounds
        for op in ("sum", "max")
        for element in ("float64", "int64")
    }
    assert [key for key, rounds in found.items() if rounds] == [("sum", "float64")]


def test_plans_move_the_largest_units_and_reduce_the_elements() -> None:
    moved = CollectiveCall("scatter", 24, root=2).collective()
    assert (moved.count, moved.datatype, moved.root) == (3, "int64", 2)
    reduced = CollectiveCall("allreduce", 24, op="max", element="float32").collective()
    assert (reduced.count, reduced.datatype, reduced.op.name) == (6, "float32", "max")
    counts = VectorCall("allgatherv", 8).collective_of(np.array([4, 12, 0]))
    assert counts.counts.array.tolist() == [1, 3, 0]
    assert unit_of(0) == np.int64
