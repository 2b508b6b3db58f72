"""MPICH's own choices, by which its collectives are priced."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost import cost_report, simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.ranks import without_native
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.mpich_rules import RULES
from collplan.planner.lowering.select import priced_spec
from collplan.planner.plan.plan import Plan
from oracle import AFFINE, REGULAR, make_spec


def chosen(kind: str, p: int, count: int, **fields: Any) -> str:
    fields = {"datatype": "float64", "count": count} | fields
    return compile_plan(make_spec(kind, "mpich", p, **fields)).phases[0].algorithm


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "p", "count", "algorithm"),
    [
        ("allgather", 8, 8_191, "recursive_doubling"),
        ("allgather", 8, 8_192, "ring"),
        ("allgather", 6, 1_706, "bruck"),
        ("allgather", 6, 1_707, "ring"),
        ("allreduce", 6, 256, "recursive_doubling"),
        ("allreduce", 6, 257, "rabenseifner"),
        ("alltoall", 7, 4_096, "linear"),
        ("alltoall", 8, 256, "bruck"),
        ("alltoall", 8, 257, "linear"),
        ("alltoall", 8, 4_097, "pairwise"),
        ("barrier", 5, 0, "recursive_doubling"),
        ("bcast", 7, 100_000, "binomial"),
        ("bcast", 8, 1_535, "binomial"),
        ("bcast", 8, 1_536, "scatter_allgather"),
        ("exscan", 5, 1_000, "recursive_doubling"),
        ("gather", 5, 1_000, "binomial"),
        ("reduce", 5, 256, "binomial"),
        ("reduce", 5, 257, "rabenseifner"),
        ("reduce_scatter_block", 8, 1_000, "recursive_halving"),
        ("reduce_scatter_block", 6, 1_000, "circulant"),
        ("reduce_scatter_block", 8, 8_192, "pairwise"),
        ("scan", 5, 1_000, "recursive_doubling"),
        ("scatter", 5, 1_000, "binomial"),
    ],
)
def test_the_first_rule_that_holds_decides(kind: str, p: int, count: int, algorithm: str) -> None:
    assert chosen(kind, p, count) == algorithm


def test_operands_that_may_not_be_exchanged_take_other_algorithms() -> None:
    order = {"op": AFFINE, "datatype": "uint64"}
    assert chosen("allreduce", 8, 10_000, **order) == "recursive_doubling"
    assert chosen("reduce", 8, 10_000, **order) == "binomial"
    assert chosen("reduce_scatter_block", 6, 100, **order) == "pairwise"
    # Fewer elements than ranks are not cut.
    assert chosen("allreduce", 1_000, 600) == "recursive_doubling"


def test_there_are_rules_for_every_collective() -> None:
    assert sorted(RULES) == sorted([*REGULAR, "neighbor_alltoall"])


def native(**fields: Any) -> Plan:
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    fields = {"decomposition": "full_lane", "count": 10_000} | fields
    return compile_plan(make_spec("allreduce", "native", 0, machine, **fields))


def test_native_components_cost_what_mpich_would_do() -> None:
    plan = native()
    timeline = simulate(plan)
    assert [phase.algorithm for phase in timeline.plan.phases] == [
        "recursive_halving", "rabenseifner", "recursive_doubling",
    ]  # fmt: skip
    report = cost_report(plan, timeline)
    assert report["priced_as"]["lane allreduce/native"] == "lane allreduce/rabenseifner"
    named = {"node": "mpich", "lane": "rabenseifner"}
    spec = priced_spec(plan.spec)
    assert spec.algorithms.name == "mpich"
    assert (
        simulate(compile_plan(spec.replace(algorithms=named))).makespan_ns == timeline.makespan_ns
    )
    assert priced_spec(spec) is spec
    assert without_native(timeline.plan) is timeline.plan


def test_only_named_components_are_replaced() -> None:
    machine = {"nodes": 2, "ranks_per_node": 4}
    algorithms = {"node": "native", "lane": "ring"}
    spec = make_spec("allreduce", algorithms, 0, machine, decomposition="full_lane", count=99)
    assert {k: v.name for k, v in priced_spec(spec).algorithms.roles.items()} == {
        "node": "mpich", "lane": "ring",
    }  # fmt: skip


def test_a_plan_without_a_spec_has_no_price() -> None:
    with pytest.raises(AlgorithmError, match="names no spec by which they could be priced"):
        simulate(native().replace(spec=None))
