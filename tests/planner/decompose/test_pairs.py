"""An alltoall through leaders: pairs that are alike are not listed."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from collplan.planner.compiler.compile import compile_plan
from collplan.planner.decompose import pairs
from collplan.planner.plan.plan import COLUMNS, CSR_PARTS, TABLES, Plan
from collplan.specs import PlanSpec

CHOSEN: list[Any] = ["full_lane", "hierarchical", {"name": "multi_leader", "leaders": 2}]


def spec_of(nodes: int, per_node: int, decomposition: Any, algorithm: str) -> PlanSpec:
    return PlanSpec.model_validate({
        "machine": {"nodes": nodes, "ranks_per_node": per_node, "lanes": 2},
        "collective": {"kind": "alltoall", "count": 3},
        "decomposition": decomposition, "algorithms": {"lane": algorithm},
    })  # fmt: skip


def bytes_of(plan: Plan) -> list[bytes]:
    columns = [getattr(plan, name) for name in (*COLUMNS, *TABLES)]
    for part in CSR_PARTS:
        columns += [getattr(getattr(plan, part), name) for name in CSR_PARTS[part].TYPES]
    return [np.ascontiguousarray(column).tobytes() for column in columns]


@pytest.mark.many
@pytest.mark.parametrize("decomposition", CHOSEN, ids=str)
@pytest.mark.parametrize("algorithm", ["bruck", "linear", "pairwise"])
@pytest.mark.parametrize(("nodes", "per_node"), [(3, 2), (4, 4), (5, 6)])
def test_pairs_that_are_not_listed_exchange_the_same(
    decomposition: Any,
    algorithm: str,
    nodes: int,
    per_node: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_of(nodes, per_node, decomposition, algorithm)
    found = [compile_plan(spec, rank=rank) for rank in (None, 1)]
    monkeypatch.setattr(pairs._Blocks, "is_regular", False)
    listed = [compile_plan(spec, rank=rank) for rank in (None, 1)]
    assert [bytes_of(plan) for plan in found] == [bytes_of(plan) for plan in listed]


def test_one_rank_of_many_needs_little_memory() -> None:
    """All pairs of 1,024 nodes, listed, take some hundred megabytes."""
    spec = spec_of(1024, 4, "full_lane", "bruck")
    tracemalloc.start()
    try:
        plan = compile_plan(spec, rank=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan.n_tasks < 100
    assert peak < 60 << 20
