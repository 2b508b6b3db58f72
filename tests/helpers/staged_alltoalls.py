"""Alltoalls through the memory of nodes: machines, decompositions, and all that must hold."""

from __future__ import annotations

import random

from collplan.planner import compile_plan
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from oracle import check_result, make_spec
from rank_programs import assert_equal

MACHINES = {
    "2x2": {"nodes": 2, "ranks_per_node": 2},
    "3,1,2": {"nodes": 3, "ranks_per_node": [3, 1, 2], "lanes": 2},
    "4x3": {"nodes": 4, "ranks_per_node": 3},
    "one node": {"nodes": 1, "ranks_per_node": 4},
    "one rank per node": {"nodes": 4, "ranks_per_node": 1},
    "any order": {"nodes": 2, "ranks_per_node": [3, 2], "rank_order": [0, 1, 0, 0, 1]},
    "cyclic": {"nodes": 3, "ranks_per_node": 3, "rank_order": "cyclic"},
}
V1, V2 = (), ("coalesce_requests",)
V3 = (*V2, "double_buffer")
HIERARCHICAL = "hierarchical"
DECOMPOSITIONS = {
    "hierarchical": HIERARCHICAL,
    "two leaders": {"name": "multi_leader", "leaders": 2},
    "two leaders for peers": {"name": "multi_leader", "leaders": 2, "form": "node_aware"},
    "all lead": {"name": "full_lane", "form": "staged"},
    "all for peers": {"name": "full_lane", "form": "node_aware"},
    "at once": {"name": "full_lane", "form": "matrix"},
}


def alltoall(machine, passes=(), decomposition=HIERARCHICAL, transport="shared", **fields):
    where = MACHINES[machine] if isinstance(machine, str) else machine
    spec = make_spec(
        "alltoall", fields.pop("algorithms", "auto"), 0, where,
        count=fields.pop("count", 3), decomposition=decomposition, passes=list(passes),
        datatype="uint64", **fields,
    )  # fmt: skip
    return spec.replace(transport=transport)


def check(spec, n_orders=1):
    """Prove the plan, run it in random orders, and compare every rank's program with it."""
    plan = compile_plan(spec)
    verify(plan)
    for seed in range(n_orders):
        check_result(plan, order=random.Random(seed), seed=seed)
    for rank in range(plan.n_ranks):
        assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))
    return plan
