"""Ranks of an allreduce get the same bits: proved where plans do it, refuted where they do not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covering
from collplan.executors.local import run_local
from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.operations import register_operation
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AlgorithmError, AsymmetricError, PlanError, UnequalBitsError
from collplan.planner.formats.npz import load, save
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rebuild import with_hazards
from collplan.planner.verify import verify
from collplan.select.comparison import compare
from collplan.specs import PlanSpec
from looping import looped, naming
from oracle import make_spec


def choices() -> list[dict[str, Any]]:
    """Return all algorithms of allreduce, with several values of their options."""
    found: list[dict[str, Any]] = []
    for algorithm in registry.of("allreduce"):
        options = {"radix": (2, 3, 4, 7), "whole": (False, True), "blocks": (1, 3)}
        names = [name for name in options if name in (algorithm.options or {})]
        found += [
            {"name": algorithm.name, name: value} for name in names for value in options[name]
        ]
        found += [] if names else [{"name": algorithm.name}]
    return found


def has_equal_bits(plan: Plan, seed: int = 0) -> bool:
    """Run a plan on numbers whose sums depend on their association, in one of its orders."""
    collective, rng = plan.spec.collective, np.random.default_rng(seed)
    shape = plan.n_ranks, collective.count
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)
    if collective.datatype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    given = list(values.astype(collective.datatype))
    results = given if collective.in_place else [np.zeros_like(row) for row in given]
    sent = [None] * plan.n_ranks if collective.in_place else given
    with np.errstate(over="ignore"):
        run_local(plan, sent, results, order=random.Random(seed))
    return len({row.tobytes() for row in results}) == 1


def with_floats(plan: Plan) -> Plan:
    """Return a plan of int64 as a plan of float64, which the compiler might refuse to make."""
    assert plan.spec is not None
    collective = plan.spec.collective.replace(datatype="float64")
    return plan.replace(spec=plan.spec.replace(collective=collective))


def verdict(plan: Plan) -> str:
    try:
        verify(plan)
    except PlanError as error:
        return error.kind
    return "proved"


@pytest.mark.many
@looped("p", range(2, 18))
@pytest.mark.long
def test_the_proof_says_what_execution_shows(p: int) -> None:
    for choice in choices():
        if registry.find("allreduce", choice["name"]).refusal(p, commutative=True):
            continue
        plan = compile_plan(make_spec("allreduce", choice, p, count=4, datatype="int64"))
        floats = with_floats(plan)
        with naming(choice):
            n_seeds = 1 if verdict(floats) == "proved" else 9
            is_equal = all(has_equal_bits(floats, seed) for seed in range(n_seeds))
            assert verdict(floats) == ("proved" if is_equal else "unequal_bits")
            spec = floats.spec.replace(algorithms=choice)
            if verdict(floats) == "proved" and choice["name"] != "census":
                compile_plan(spec, rank=0)
            else:
                with pytest.raises(AlgorithmError, match="the operation rounds, and each rank"):
                    compile_plan(spec, rank=0)


FORMS: dict[str, Any] = {
    "flat": "flat", "full_lane": "full_lane", "hierarchical": "hierarchical",
    "two leaders": {"name": "multi_leader", "leaders": 2}, "mesh": {"name": "mesh", "by": "node"},
    "guideline": {"name": "guideline", "form": "reduce_scatter+allgather"},
}  # fmt: skip
PASSES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "segments": [{"name": "segment", "max_bytes": 24}, {"name": "limit_requests"}],
    "slices": [{"name": "slice_vector", "slices": 2}, {"name": "prioritize"}],
    "others": [{"name": "coalesce_requests"}, {"name": "double_buffer"}, {"name": "split_lanes"}],
}
CASES = covering.pairs({
    "nodes": [(2,), (1, 2, 3), (3, 3), (4, 4), (2, 1, 2, 2), (3, 3, 3, 3, 3)],
    "form": list(FORMS),
    "role": ["node", "lane", None],
    "algorithm": [str(number) for number in range(len(choices()))],
    "passes": list(PASSES),
    "transport": ["messages", "shared"],
    "datatype": ["float64", "complex128", "float16"],
    "op": ["sum", "prod"],
    "in_place": [False, True],
})  # fmt: skip


@pytest.mark.many
@looped("case", CASES)
def test_decompositions_passes_and_transports_give_equal_bits(case: dict[str, Any]) -> None:
    plan = compiled_case(case)
    assert plan is None or has_equal_bits(plan)


def test_not_all_cases_are_refused() -> None:
    some = CASES[::8]
    assert sum(compiled_case(case) is None for case in some) < len(some)


def compiled_case(case: dict[str, Any]) -> Plan | None:
    """Return the proved plan of a case; None if the compiler refuses it by name."""
    choice = choices()[int(case["algorithm"])]
    algorithms = choice if case["form"] == "flat" else {case["role"]: choice}
    spec = {
        "machine": {"nodes": len(case["nodes"]), "ranks_per_node": list(case["nodes"]), "lanes": 2},
        "collective": {
            "kind": "allreduce", "count": 11, "in_place": case["in_place"],
            "datatype": case["datatype"], "op": case["op"],
        },
        "decomposition": FORMS[case["form"]],
        "passes": PASSES[case["passes"]],
        "transport": case["transport"],
        **({"algorithms": algorithms} if case["role"] or case["form"] == "flat" else {}),
    }  # fmt: skip
    try:
        return compile_plan(PlanSpec.model_validate(spec))
    except AlgorithmError:
        return None


@pytest.mark.many
@looped("nodes, per_node", [(3, 1), (4, 1), (8, 1), (8, 2), (6, 2), (5, 3)])
def test_folded_plans_are_judged_as_those_of_all_ranks(nodes: int, per_node: int) -> None:
    machine = {"nodes": nodes, "ranks_per_node": per_node}
    n_refuted = n_folded = 0
    for choice in (choice for choice in choices() if choice.get("blocks", 1) == 1):
        for form in ("flat", "full_lane", "hierarchical"):
            chosen = {"decomposition": form, "count": 4 * nodes * per_node, "datatype": "int64"}
            algorithms = choice if form == "flat" else {"lane": choice}
            try:
                spec = make_spec("allreduce", algorithms, 0, machine, **chosen)
                folded = compile_folded(spec)
            except (AlgorithmError, AsymmetricError):
                continue
            wanted = verdict(with_floats(compile_plan(spec)))
            with naming(choice, form):
                assert verdict(with_floats(folded)) == wanted
            n_folded, n_refuted = n_folded + 1, n_refuted + (wanted == "unequal_bits")
    assert n_folded > n_refuted > 0


def test_the_message_names_both_orders() -> None:
    spec = make_spec("allreduce", "census", 3, count=2, datatype="int64")
    with pytest.raises(UnequalBitsError) as error:
        verify(with_floats(compile_plan(spec)))
    assert str(error.value) == (
        "rank 1 recv[0] holds the ranks combined as (1 (0 2)), rank 0 as (0 (1 2)): sum of float64 "
        "rounds, so that they may differ in bits; combine in one order on all ranks, or use an "
        "operation that does not round"
    )


def test_a_plan_file_with_another_order_is_caught(tmp_path: Path) -> None:
    plan = compile_plan(
        make_spec("allreduce", "recursive_multiplying", 4, count=4, datatype="float64")
    )
    _, second, third = np.flatnonzero((plan.op == Op.REDUCE) & (plan.rank == 0))
    columns = {}
    for name in ("buffer", "offset", "count", "pattern"):
        columns[name] = np.array(getattr(plan.reads, name))
        both = plan.reads.indptr[[second, third]]
        columns[name][both] = columns[name][both[::-1]]
    tampered = with_hazards(plan.replace(reads=replace(plan.reads, **columns)))
    save(tampered, tmp_path / "tampered.npz")
    assert not has_equal_bits(tampered)
    with pytest.raises(UnequalBitsError, match=r"rank 1 .* rank 0 as \(2 \(3 \(0 1\)\)\)"):
        verify(load(tmp_path / "tampered.npz"))


def mean(left: Any, right: Any, out: Any) -> None:
    np.add(left, right, out=out)


@looped("datatype, op, refused", [
    ("float64", "max", False), ("float32", "min", False), ("int32", "sum", False),
    ("bool", "land", False), ("double_int", "maxloc", False), ("int64", "own", False),
    ("float32", "sum", True), ("float64", "prod", True), ("complex64", "sum", True),
    ("float16", "sum", True), ("float64", "own", True), ("complex128", "own", True),
])  # fmt: skip
def test_operations_that_do_not_round_keep_all_algorithms(
    datatype: str, op: str, refused: bool
) -> None:
    register_operation("own", mean, commutative=True)
    given = {"name": "own", "commutative": True} if op == "own" else op
    spec = make_spec("allreduce", "census", 5, count=2, datatype=datatype, op=given)
    if not refused:
        verify(compile_plan(spec, is_proved=False))
        return
    with pytest.raises(AlgorithmError, match="allreduce/census: the operation rounds, "):
        compile_plan(spec)


def test_exchanged_operands_count_where_they_may_change_bits() -> None:
    """Two ranks that combine from their own operand on get equal sums, but perhaps not products."""
    plan = compile_plan(make_spec("allreduce", "census", 2, count=2, datatype="int64", op="sum"))
    assert plan.spec is not None
    for datatype, op, wanted in (
        ("float64", "sum", "proved"), ("float64", "prod", "proved"),
        ("complex128", "sum", "proved"), ("complex128", "prod", "unequal_bits"),
    ):  # fmt: skip
        collective = plan.spec.collective.replace(datatype=datatype, op={"name": op})
        spec = plan.spec.replace(collective=collective)
        assert verdict(plan.replace(spec=spec, itemsize=collective.itemsize)) == wanted


def test_compare_leaves_out_what_gives_unequal_bits() -> None:
    spec = make_spec("allreduce", "ring", 3, count=64, datatype="float64")
    refused = compare([spec]).refused
    assert "the operation rounds" in refused["census"]
    exact = spec.replace(collective=spec.collective.replace(datatype="int64"))
    assert "census" not in compare([exact]).refused
