"""Decompositions by aligned blocks of ranks keep the rank tree; others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.planner import compile_plan
from collplan.planner.compiler.proof import proved_level
from collplan.planner.errors import AlgorithmError
from collplan.specs import PlanSpec, parse_spec
from looping import looped

KINDS = ("allreduce", "reduce", "reduce_scatter_block")


def spec_of(kind: str, nodes: Any, decomposition: Any, **machine: Any) -> PlanSpec:
    root = {"root": sum(nodes) - 2} if kind == "reduce" else {}
    machine = {"nodes": len(nodes), "ranks_per_node": list(nodes), **machine}
    collective = {"kind": kind, "count": 13, "reproducible": "placements", **root}
    return parse_spec(
        {"machine": machine, "collective": collective, "decomposition": decomposition}
    )


@looped("decomposition", [
    "hierarchical", "full_lane", {"name": "multi_leader", "leaders": 2},
    {"name": "full_lane", "shares": "balanced"}, {"name": "mesh", "by": "node"}, "guideline",
])  # fmt: skip
def test_aligned_blocks_keep_the_rank_tree(decomposition: Any) -> None:
    for nodes in ((4, 4, 4), (2, 2, 2, 2, 2), (4, 3)):
        is_mesh = isinstance(decomposition, dict) and decomposition["name"] == "mesh"
        if is_mesh and len(set(nodes)) > 1:
            continue
        for kind in KINDS:
            plan = compile_plan(spec_of(kind, nodes, decomposition, lanes=2))
            assert proved_level(plan) == "placements"


@looped("nodes, machine", [
    ((3, 3), {}), ((4, 2, 4), {}), ((3, 4), {}), ((2, 4), {}),
    ((2, 2), {"rank_order": "cyclic"}),
])  # fmt: skip
def test_other_rows_are_refused(nodes: tuple[int, ...], machine: dict[str, Any]) -> None:
    for kind in KINDS:
        with pytest.raises(AlgorithmError, match=r"^decomposition: .*(rank tree|has none)"):
            compile_plan(spec_of(kind, nodes, "full_lane", **machine), is_proved=False)


@looped("kind, decomposition", [
    ("scan", "full_lane"), ("exscan", "hierarchical"), ("scan", "guideline"),
    ("scan", {"name": "mesh", "by": "node"}), ("reduce", {"name": "full_lane", "form": "gather"}),
])  # fmt: skip
def test_other_orders_are_refused(kind: str, decomposition: Any) -> None:
    with pytest.raises(AlgorithmError, match=r"^decomposition: collective.reproducible is"):
        compile_plan(spec_of(kind, (2, 2, 2, 2), decomposition), is_proved=False)


def test_an_exscan_of_a_guideline_keeps_the_rank_tree() -> None:
    for nodes in ((5,), (3, 3)):
        plan = compile_plan(spec_of("exscan", nodes, "guideline"))
        assert proved_level(plan) == "placements"
