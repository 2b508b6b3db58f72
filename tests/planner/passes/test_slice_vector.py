"""slice_vector: what it computes, in which order, and that each rank can plan it alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.ranks import compile_node, needs_all_ranks
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from oracle import AFFINE, check_result, make_spec
from rank_programs import assert_equal

KINDS = ["bcast", "reduce", "allreduce", "scan", "exscan"]
WINDOWS = {"name": "limit_requests", "remote": 1, "local": 1, "receives": 2, "order": "rows"}
MACHINES: dict[str, dict[str, Any]] = {
    "3x2": {"nodes": 3, "ranks_per_node": 2},
    "1,3,2": {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2},
}
DECOMPOSITIONS = ["flat", "hierarchical", "full_lane"]


def sliced(kind: str, slices: int, decomposition: object = "flat", machine: str = "3x2",
           algorithm: object = "auto", **fields: Any) -> PlanSpec:  # fmt: skip
    passes = [{"name": "slice_vector", "slices": slices}, WINDOWS]
    return make_spec(
        kind, algorithm, 0, MACHINES[machine], decomposition=decomposition, passes=passes, **fields
    )


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("machine", MACHINES)
def test_slices_compute_the_vector_in_any_legal_order(kind, decomposition, machine):
    """With counts that slices and lanes do not divide, also fewer than lanes."""
    for count, slices, root in ((17, 3, 4), (7, 5, 0), (2, 50, 5)):
        for in_place in (False, True):
            fields = {"count": count, "root": root, "in_place": in_place, "datatype": "int32"}
            plan = compile_plan(
                sliced(kind, slices, decomposition, machine, **fields), is_proved=False
            )
            check_format(plan)
            verify(plan)
            check_result(plan)
            check_result(plan, order=random.Random(count))


@pytest.mark.parametrize("kind", ["reduce", "allreduce", "scan", "exscan"])
def test_operands_keep_their_order(kind):
    for decomposition in DECOMPOSITIONS:
        fields = {"count": 7, "root": 3, "datatype": "uint64", "op": AFFINE}
        plan = compile_plan(sliced(kind, 3, decomposition, **fields), is_proved=False)
        verify(plan)
        check_result(plan, order=random.Random(kind))


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_ranks_program_is_compiled_alone(kind, transport, machine):
    for decomposition in DECOMPOSITIONS:
        for count, slices, root in ((17, 3, 4), (7, 5, 0)):
            spec = sliced(kind, slices, decomposition, machine, count=count, root=root)
            spec = spec.replace(transport=transport)
            assert not needs_all_ranks(spec)
            plan = compile_plan(spec, is_proved=False)
            for rank in (0, 2, 5):
                assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))
            assert compile_node(spec, 1).n_tasks == (plan.node == 1).sum()


def test_slices_go_through_the_rounds_one_behind_the_other():
    """A chain of 8 ranks and 16 slices takes 6 + 16 steps of 1/16 of the vector, not 7 of 1."""
    machine = {"nodes": 8, "network": {"network": {"L_ns": 0, "o_ns": 0, "g_ns": 0}}}
    fields = {"count": 1 << 16, "datatype": "int8"}
    whole = simulate(compile_plan(make_spec("bcast", "chain", 0, machine, **fields))).makespan_ns
    for windows in ([], [WINDOWS]):
        passes = [{"name": "slice_vector", "slices": 16}, *windows]
        plan = compile_plan(make_spec("bcast", "chain", 0, machine, passes=passes, **fields))
        assert simulate(plan).makespan_ns == pytest.approx(whole * (6 + 16) / (7 * 16), rel=0.01)


def test_rows_are_in_the_order_of_the_pipeline():
    """A chain's message of slice g in round r comes with those for which r + g is the same."""
    passes = [{"name": "slice_vector", "slices": 3}]
    plan = compile_plan(make_spec("bcast", "chain", 4, passes=passes, count=3))
    sends = [task for task in plan.tasks() if task.op == Op.SEND]
    slices = plan.reads.offset[plan.reads.indptr[[task.row for task in sends]]].tolist()
    assert [(task.rank, part) for task, part in zip(sends, slices, strict=True)] == [
        (0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (2, 1), (1, 2), (2, 2),
    ]  # fmt: skip


def test_every_slice_is_a_collective_of_its_own():
    """It has the messages of one of its count, and tasks that wait for no other slice's data."""
    spec = sliced("allreduce", 3, "full_lane", count=3 * 24)
    plan = compile_plan(spec.replace(passes=spec.passes[:1]))
    one = compile_plan(spec.replace(passes=()).with_count(24))
    assert plan.n_tasks == 3 * one.n_tasks
    for rank in range(plan.n_ranks):
        for op in (Op.SEND, Op.RECV, Op.REDUCE):
            mine, ofone = (
                each.elements[(each.rank == rank) & (each.op == op)] for each in (plan, one)
            )
            assert sorted(mine) == sorted(np.tile(ofone, 3))
    assert plan.phases == one.phases


def test_slices_of_other_phases_have_phases_of_their_own():
    """Of 2 elements and 1: the lane without a share has no collective."""
    plan = compile_plan(sliced("allreduce", 2, "full_lane", count=3), is_proved=False)
    verify(plan)
    of_two, of_one = (
        compile_plan(sliced("allreduce", 1, "full_lane", count=count)) for count in (2, 1)
    )
    assert plan.n_tasks == of_two.n_tasks + of_one.n_tasks
    assert {phase.name for phase in plan.phases} == {
        phase.name for each in (of_two, of_one) for phase in each.phases
    }


def test_leaders_are_split_in_every_slice():
    leaders = {"name": "split_lanes", "leaders": 2}
    cut = {"name": "slice_vector", "slices": 3}
    machine = MACHINES["3x2"]
    fields = {"machine": machine, "count": 18}
    one = make_spec(
        "bcast", "auto", 0, decomposition="hierarchical", passes=[cut, leaders], **fields
    )
    other = make_spec("bcast", "auto", 0, decomposition="full_lane", passes=[cut], **fields)
    one_plan, other_plan = compile_plan(one), compile_plan(other)
    assert np.array_equal(one_plan.peer, other_plan.peer)
    assert np.array_equal(one_plan.round, other_plan.round)
    with pytest.raises(AlgorithmError, match=r"slice_vector: .* what split_lanes .*put it first"):
        compile_plan(one.replace(passes=[leaders, cut]))


def test_where_there_is_nothing_to_slice():
    for kind in ("alltoall", "allgather", "gather", "barrier"):
        with pytest.raises(AlgorithmError, match=rf"slice_vector: {kind} has no vector.*segment"):
            compile_plan(sliced(kind, 2, count=4))
    with pytest.raises(AlgorithmError, match=r"slice_vector\.slices: 0 is not a number"):
        compile_plan(sliced("bcast", 0, count=4))
    for count, slices in ((0, 3), (1, 3), (5, 1)):
        verify(compile_plan(sliced("bcast", slices, count=count), is_proved=False))
