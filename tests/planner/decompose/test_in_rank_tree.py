"""Reductions by alltoalls through leaders combine in the rank tree on any nodes and rank orders."""

from __future__ import annotations

from typing import Any

import pytest

import covering
from collplan.planner import compile_plan
from collplan.planner.compiler.proof import proved_level
from collplan.planner.decompose import second_forms
from collplan.planner.errors import AlgorithmError
from collplan.specs import PlanSpec, parse_spec
from looping import looped
from rounding import in_rank_tree, results_on_values

CASES = covering.pairs({
    "kind": [
        "allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan",
    ],
    "nodes": [(3, 3), (3, 2, 1), (2, 2, 2), (1, 1, 1, 1, 1), (5,), (4, 3, 3)],
    "order": ["block", "cyclic"],
    "name": ["full_lane", "hierarchical", "multi_leader"],
    "transport": ["messages", "shared"],
    "in_place": [False, True],
    "count": [1, 13],
    "op": ["sum", {"name": "sum", "commutative": False}],
})  # fmt: skip


def spec_of(
    kind: str, nodes: tuple[int, ...], *, name: str = "full_lane", count: int = 13, **given: Any
) -> PlanSpec:
    p = sum(nodes)
    collective = {"kind": kind, "count": count, "reproducible": "placements"}
    collective |= {key: given[key] for key in ("in_place", "op") if key in given}
    if kind == "reduce":
        collective["root"] = p - 2
    if kind == "reduce_scatter":
        del collective["count"]
        collective["counts"] = [3 * rank % 5 for rank in range(p)]
    leaders = {"leaders": min(2, max(nodes))} if name == "multi_leader" else {}
    return parse_spec({
        "machine": {
            "nodes": len(nodes), "ranks_per_node": list(nodes), "lanes": 2,
            "rank_order": given.get("order", "block"),
        },
        "collective": collective,
        "decomposition": {"name": name, "form": "rank_tree", **leaders},
        "transport": given.get("transport", "messages"),
    })  # fmt: skip


@pytest.mark.many
@looped("case", CASES)
def test_reductions_keep_the_rank_tree_on_any_nodes(case: dict[str, Any]) -> None:
    plan = compile_plan(spec_of(**case))
    assert proved_level(plan) == "placements"
    for (rank, element, last), result in results_on_values(plan).items():
        assert result == in_rank_tree(0, last)[element], (rank, element)


def test_the_form_is_tried_where_the_level_asks_for_it() -> None:
    assert second_forms("scan") == ("transpose",)
    assert second_forms("scan", "placements") == ("transpose", "rank_tree")
    assert second_forms("bcast", "placements") == ()


def test_vectors_that_are_too_large_together_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="which are too many here; use the algorithm"):
        compile_plan(spec_of("allreduce", (3, 2), count=2**31), is_proved=False)
