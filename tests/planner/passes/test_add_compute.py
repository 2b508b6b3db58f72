"""Computation beside collectives: its place between start and wait, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes import run_passes
from collplan.planner.plan.plan import Op, Stage
from collplan.planner.plan.ragged import INTENT
from collplan.planner.verify import verify
from collplan.specs import PassChoice
from oracle import check_result, make_spec
from split_trees import split, tree_plan


def test_computation_begins_after_start_and_wait_comes_after_it():
    compute = {"name": "add_compute", "duration_ns": 700}
    plan = tree_plan("allreduce", "reduce_bcast", 6, split(1), compute)
    rows = np.flatnonzero(plan.op == Op.COMPUTE)
    assert sorted(plan.rank[rows].tolist()) == list(range(6))
    assert set(plan.duration_ns[rows].tolist()) == {700}
    assert (plan.core[rows] == plan.rank_core[plan.rank[rows]]).all()
    assert set(plan.stage[rows].tolist()) == {Stage.BACKGROUND}
    for row in rows.tolist():
        mine = plan.rank == plan.rank[row]
        task = plan.task(row)
        assert list(task.after) == np.flatnonzero(mine & (plan.stage == Stage.START)).tolist()
        for wait in np.flatnonzero(mine & (plan.stage == Stage.WAIT)).tolist():
            edges = slice(plan.deps.indptr[wait], plan.deps.indptr[wait + 1])
            before = plan.deps.task[edges].tolist()
            assert plan.deps.kind[edges][before.index(row)] == INTENT
    verify(plan)
    check_result(plan)
    # Placing afterwards leaves it with its rank.
    later = tree_plan("allreduce", "reduce_bcast", 6, compute, "place_progress")
    rows = np.flatnonzero(later.op == Op.COMPUTE)
    assert (later.core[rows] == later.rank_core[later.rank[rows]]).all()


def test_computation_is_added_where_there_is_nothing_else():
    compute = {"name": "add_compute", "duration_ns": 0}
    for fields in ({"count": 0}, {"n_ranks": 1}):
        plan = tree_plan("bcast", "binomial", fields.pop("n_ranks", 3), compute, **fields)
        verify(plan)
        assert (plan.op == Op.COMPUTE).all()
        assert plan.n_tasks == plan.n_ranks


def test_each_rank_of_a_folded_plan_computes_once():
    spec = make_spec(
        "allreduce", "ring", 8, {"nodes": 4, "ranks_per_node": 2}, count=64, passes=["add_compute"]
    )
    folded = compile_folded(spec)
    assert folded.rank[folded.op == Op.COMPUTE].tolist() == [0, 1]
    own = compile_plan(spec, rank=5)
    assert own.rank[own.op == Op.COMPUTE].tolist() == [5]


def test_add_compute_refuses_what_it_cannot_do():
    for wrong in (-1, 1.5, True, 2**62, "1ms"):
        with pytest.raises(AlgorithmError, match=r"duration_ns: .* is not a number of ns"):
            tree_plan("bcast", "binomial", 3, {"name": "add_compute", "duration_ns": wrong})
    with pytest.raises(AlgorithmError, match="computes already; use it once"):
        tree_plan("bcast", "binomial", 3, "add_compute", "add_compute")
    spec = tree_plan("bcast", "binomial", 3, transport="shared").spec
    with pytest.raises(AlgorithmError, match="rank 1's program waits for rows of others"):
        run_passes(compile_plan(spec, rank=1), [PassChoice(name="add_compute")])
