"""Levels of `reproducible`: results are equal where they promise it, and may differ elsewhere."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import covering
from collplan.planner import Plan, compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.compiler.proof import proved_level, uncut, verify_plan
from collplan.planner.errors import AlgorithmError, AsymmetricError, IrreproducibleError
from collplan.planner.passes import registry
from collplan.specs import PlanSpec, SpecError, parse_spec
from looping import looped, naming
from rounding import in_rank_tree, in_turns, results_on_values

KINDS = ("allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan")


def spec_of(kind: str, nodes: Any, level: str, count: int = 7, **fields: Any) -> PlanSpec:
    """Return a spec on nodes with these numbers of ranks, which `fields` completes."""
    p = sum(nodes)
    collective = {"kind": kind, "reproducible": level, "count": count}
    if kind == "reduce_scatter":
        del collective["count"]
        collective["counts"] = [(count + rank) % 4 for rank in range(p)]
    for name in ("root", "in_place", "op", "datatype"):
        if name in fields and (name != "root" or kind == "reduce"):
            collective[name] = fields.pop(name)
        fields.pop(name, None)
    machine = {"nodes": len(nodes), "ranks_per_node": list(nodes), "lanes": 2}
    return parse_spec({"machine": machine, "collective": collective, **fields})


def placements_of(p: int) -> list[tuple[int, ...]]:
    """Return some placements of p ranks on nodes."""
    found = [(p,), (1,) * p, (p // 2, p - p // 2), (2,) * (p // 2) + (1,) * (p % 2)]
    found += [(4,) * (p // 4) + (p % 4,) * (p % 4 > 0), (3,) * (p // 3) + (p % 3,) * (p % 3 > 0)]
    return list(dict.fromkeys(one for one in found if min(one) > 0))


METHODS: dict[str, Any] = {
    "flat": {},
    "full_lane": {"decomposition": "full_lane"},
    "hierarchical": {"decomposition": "hierarchical"},
    "balanced": {"decomposition": {"name": "full_lane", "shares": "balanced"}},
    "guideline": {"decomposition": "guideline"},
    "mesh": {"decomposition": {"name": "mesh", "by": "node"}},
    "rank_tree": {"algorithms": "rank_tree"},
    "by lanes": {"decomposition": {"name": "full_lane", "form": "rank_tree"}},
}
PASSES: dict[str, Any] = {
    "none": [],
    "segments": [{"name": "segment", "max_bytes": 24}, "limit_requests"],
    "slices": [{"name": "slice_vector", "slices": 3}],
    "others": ["coalesce_requests", "double_buffer"],
}
CASES = covering.pairs({
    "kind": KINDS,
    "method": list(METHODS),
    "passes": list(PASSES),
    "transport": ["messages", "shared"],
    "count": [1, 7, 40],
    "in_place": [False, True],
    "op": ["sum", {"name": "sum", "commutative": False}],
})  # fmt: skip


def compiled(case: dict[str, Any], nodes: tuple[int, ...], level: str) -> Plan | None:
    """Return the proved plan of a case; None if the planner refuses it by name."""
    fields = {"in_place": case["in_place"], "transport": case["transport"], "op": case["op"]}
    root = case["count"] % sum(nodes)
    passes = PASSES[case["passes"]]
    if case["kind"].startswith("reduce_scatter") and case["passes"] == "slices":
        passes = []
    method = METHODS[case["method"]]
    try:
        spec = spec_of(
            case["kind"], nodes, level, case["count"], root=root, passes=passes, **fields, **method
        )
        return compile_plan(spec)
    except AlgorithmError:
        return None


@pytest.mark.many
@looped("p", range(2, 18))
def test_results_between_placements_are_those_of_the_rank_tree(p: int) -> None:
    n_plans = 0
    places = placements_of(p)
    for number, case in enumerate(CASES[p % 4 :: 4]):
        plan = compiled(case, places[number % len(places)], "placements")
        if plan is None:
            continue
        n_plans += 1
        for (rank, element, last), result in results_on_values(plan, random.Random(p)).items():
            assert result == in_rank_tree(0, last)[element], (case, rank, element)
    assert n_plans > 3
    if p > 3:
        assert (in_rank_tree(0, p) != in_turns(p)).any()


@pytest.mark.many
@looped("p", range(2, 18))
def test_what_no_rule_refuses_is_proved_reproducible_between_runs(p: int) -> None:
    """The proof confirms all plans that pass the rules; `compiled` would raise its error."""
    places = placements_of(p)
    levels = []
    for number, case in enumerate(CASES[p % 4 :: 4]):
        plan = compiled(case, places[number % len(places)], "runs")
        levels += [] if plan is None else [proved_level(plan)]
    assert levels
    assert set(levels) <= {"runs", "placements"}


def results(kind: str, nodes: Any, level: str, **fields: Any) -> dict[Any, float]:
    return results_on_values(compile_plan(spec_of(kind, nodes, level, **fields)))


CUTS: list[dict[str, Any]] = [
    {},
    *({"passes": [{"name": "segment", "max_bytes": n}]} for n in (8, 56)),
]


@looped("kind, method", [
    ("allreduce", {}), ("allreduce", {"decomposition": "full_lane"}), ("scan", {}),
    ("reduce", {"decomposition": "hierarchical"}),
])  # fmt: skip
def test_results_between_runs_do_not_depend_on_segments(kind: str, method: Any) -> None:
    given = {"count": 20, **method}
    first, *others = (results(kind, (3, 2), "runs", **given, **cut) for cut in CUTS)
    assert all(other == first for other in others)
    shared = {"passes": [{"name": "segment", "max_bytes": 16}, "prioritize"]}
    assert results(kind, (3, 2), "runs", **given, **shared) == first


def test_results_between_ranks_may_depend_on_slices() -> None:
    """A plan in slices is proved for ranks; its bits are others than those of the whole plan."""
    given = {"count": 40, "algorithms": "ring"}
    slices = {"passes": [{"name": "slice_vector", "slices": 3}]}
    whole, sliced = (results("allreduce", (5,), "ranks", **given, **cut) for cut in ({}, slices))
    assert whole != sliced
    assert len({value for (_, element, _), value in sliced.items() if element == 0}) == 1
    with pytest.raises(AlgorithmError, match=r"^passes.slice_vector: slices are combined in other"):
        compile_plan(spec_of("allreduce", (5,), "runs", **given, **slices))


@looped("change", [{"nodes": (2, 2, 2)}, {"count": 12}, {"algorithms": "recursive_doubling"}])
def test_results_between_runs_may_depend_on_nodes_sizes_and_algorithms(
    change: dict[str, Any],
) -> None:
    given = {"nodes": (3, 3), "count": 40, "level": "runs", "decomposition": "full_lane"}
    if "nodes" not in change:
        given |= {"decomposition": "flat", "algorithms": "ring"}
    one, other = (results("allreduce", **fields) for fields in (given, given | change))
    assert any(one[key] != other[key] for key in one.keys() & other.keys())


def test_the_proof_refutes_what_no_rule_refuses() -> None:
    """Rules only spare the search; without them, the proof decides, and says what is wrong."""
    slices = {"passes": [{"name": "slice_vector", "slices": 3}], "algorithms": "ring"}
    plan = compile_plan(spec_of("allreduce", (5,), "ranks", 40, **slices))
    asked = plan.replace(spec=plan.spec.with_level("runs"))
    for prove in (verify_plan, proved_level):
        with pytest.raises(IrreproducibleError, match=r"rank 0 recv\[\d+\] holds .* uncut plan as"):
            prove(asked)
    assert proved_level(plan) == "ranks"
    asked = plan.replace(spec=plan.spec.with_level("placements"))
    with pytest.raises(IrreproducibleError, match=r"the rank tree is \(\(\(0 1\) \(2 3\)\) 4\)"):
        verify_plan(asked)


@looped("fields, level", [
    ({"algorithms": "ring"}, "runs"),
    ({"algorithms": "rank_tree"}, "placements"),
    ({"algorithms": "ring", "passes": [{"name": "segment", "max_bytes": 16}]}, "runs"),
    ({"algorithms": {"name": "two_tree", "blocks": 1}}, "runs"),
    ({"algorithms": {"name": "two_tree", "blocks": 4}}, "ranks"),
    ({"algorithms": {"name": "dual_root", "blocks": 4}}, "runs"),
    ({"algorithms": "native"}, "ranks"),
    ({"algorithms": "recursive_doubling", "passes": ["slice_vector"]}, "runs"),
    ({"algorithms": "ring", "datatype": "int32"}, None),
    ({"algorithms": "ring", "op": "max"}, None),
])  # fmt: skip
def test_the_strongest_level_is_found(fields: dict[str, Any], level: str | None) -> None:
    assert proved_level(compile_plan(spec_of("allreduce", (3, 2), "ranks", 40, **fields))) == level


def test_of_large_plans_the_level_of_the_spec_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "VERIFY_LIMIT", 0)
    for asked in ("ranks", "runs", "placements"):
        plan = compile_plan(spec_of("allreduce", (3, 2), asked, 40, algorithms="rank_tree"))
        assert proved_level(plan) == asked
    ring = compile_plan(spec_of("allreduce", (3, 2), "runs", 40, algorithms="ring"))
    with pytest.raises(IrreproducibleError):
        proved_level(ring.replace(spec=ring.spec.with_level("placements")))


@looped("level", ["runs", "placements"])
def test_operations_that_do_not_round_have_every_level(level: str) -> None:
    for given in ({"datatype": "int64"}, {"op": "max"}):
        for algorithm in ("census", "ring", "native"):
            compile_plan(spec_of("allreduce", (3, 2), level, algorithms=algorithm, **given))


@looped("level, fields, line", [
    ("placements", {"algorithms": "ring"},
     "allreduce/ring: collective.reproducible is placements, and it does not combine operands in "
     "the rank tree of 5 ranks; use 'rank_tree' or 'reduce_bcast'"),
    ("runs", {"algorithms": "native"},
     "allreduce/native: collective.reproducible is runs, and the MPI library decides in which "
     "order it combines operands; use 'circulant'"),
    ("runs", {"algorithms": {"name": "two_tree", "blocks": 4}},
     "algorithms.blocks: 4 blocks are combined in other orders than one, and "
     "collective.reproducible is runs; use blocks: 1, or ask for collective.reproducible: ranks"),
    ("placements", {"decomposition": "full_lane"},
     "decomposition: collective.reproducible is placements, and full_lane combines rows of 3 ranks "
     "first, which the rank tree does only with equal rows of 2, 4, 8, ... consecutive ranks; use "
     "full_lane with form: rank_tree, flat or auto, or ask for runs"),
    ("runs", {"decomposition": {"name": "full_lane", "shares": "balanced"}},
     "decomposition.shares: balanced shares depend on the rates of lanes, and "
     "collective.reproducible is runs; use equal shares, or ask for ranks"),
])  # fmt: skip
def test_what_contradicts_a_level_is_refused_in_one_line(
    level: str, fields: dict[str, Any], line: str
) -> None:
    with pytest.raises(AlgorithmError) as error:
        compile_plan(spec_of("allreduce", (3, 2), level, 40, **fields))
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_levels_have_names() -> None:
    with pytest.raises(SpecError, match=r"'run' is not valid; use ranks"):
        spec_of("allreduce", (3, 2), "run")


def test_a_spec_without_sizes_keeps_the_rest() -> None:
    given = {
        "decomposition": {"name": "full_lane", "shares": "balanced", "node": "full_lane"},
        "algorithms": {"node": "ring", "lane": {"name": "two_tree", "blocks": 3}},
        "passes": [{"name": "segment", "max_bytes": 16}, "prioritize"],
    }
    spec = uncut(spec_of("allreduce", (2, 2), "runs", **given))
    assert str(spec.decomposition) == "full_lane(node=full_lane)"
    assert str(spec.algorithms) == "node: ring, lane: two_tree(blocks=1)"
    assert [one.name for one in spec.passes] == ["prioritize"]
    assert uncut(spec) == spec


def test_values_show_their_association() -> None:
    assert not np.array_equal(in_rank_tree(0, 4), in_turns(4))


def test_folded_plans_have_the_level_of_those_of_all_ranks() -> None:
    """A tree of node 0 stands for those of all nodes, which may be other trees of other ranks."""
    levels = []
    for kind, nodes, algorithm in product(
        ("allreduce", "reduce_scatter_block"),
        ((2,) * 4, (1,) * 8, (2,) * 3),
        ("ring", "recursive_doubling", "recursive_halving", "bine"),
    ):
        try:
            spec = spec_of(kind, nodes, "ranks", 48, algorithms=algorithm)
            folded = compile_folded(spec)
        except (AlgorithmError, AsymmetricError):
            continue
        levels.append(proved_level(folded))
        with naming(kind, nodes, algorithm):
            assert levels[-1] == proved_level(compile_plan(spec))
    assert {"runs", "placements"} <= set(levels)
