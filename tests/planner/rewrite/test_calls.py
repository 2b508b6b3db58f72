"""Plans that call the MPI library's own collectives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.formats.npz import load, save
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.rewrite.calls import (
    CALLED,
    COMBINING,
    calls_of,
    has_calls,
    write_barriers,
    write_out,
)
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs.collectives.collective import COLLECTIVES
from looping import looped
from oracle import AFFINE, REGULAR, check_result, make_spec
from rank_programs import assert_equal
from tiers import briefly

MACHINES: list[dict[str, Any]] = [
    *({"ranks_per_node": p} for p in range(1, 10)),
    {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
    {"nodes": 3, "ranks_per_node": [3, 1, 2]},
    {"nodes": 4, "ranks_per_node": 2, "rank_order": "cyclic"},
]
REFUSALS = ("differ in size", "leaders", "no guideline", "rank order")
DECOMPOSITIONS: list[Any] = [
    "flat", "hierarchical", "full_lane", {"name": "multi_leader", "leaders": 2}, "guideline",
]  # fmt: skip


def natives(kind: str, machine: dict[str, Any], **fields: Any) -> Plan | None:
    """Return a plan of native components; None where there is none, as for uneven alltoalls."""
    try:
        return compile_plan(make_spec(kind, "native", 0, machine, **fields), is_proved=False)
    except (AlgorithmError, ValueError) as error:
        if any(word in str(error) for word in REFUSALS):
            return None
        raise


@pytest.mark.many
@pytest.mark.parametrize("kind", REGULAR)
@looped("machine", MACHINES)
def test_native_components_compute(kind: str, machine: dict[str, Any]) -> None:
    rng = random.Random(kind)
    for turn, decomposition in enumerate(DECOMPOSITIONS, MACHINES.index(machine)):
        if kind == "barrier" and decomposition != "flat":
            continue
        for count in ((0, 7), (1,), (7,))[turn % 3]:
            plan = natives(kind, machine, decomposition=decomposition, count=count,
                           in_place=bool(count), datatype="int32")  # fmt: skip
            if plan is not None:
                verify(plan)
                check_result(plan, order=rng)


@looped("kind", [kind for kind in REGULAR if COLLECTIVES[kind].has_op])
@looped("decomposition", DECOMPOSITIONS)
def test_operands_stay_in_the_order_of_ranks(kind: str, decomposition: Any) -> None:
    fields = {"decomposition": decomposition, "op": AFFINE, "datatype": "uint64", "count": 5}
    plan = natives(kind, {"nodes": 2, "ranks_per_node": 3}, **fields)
    assert plan is not None
    verify(plan)
    check_result(plan)


@pytest.mark.many
@pytest.mark.parametrize("kind", [kind for kind in REGULAR if COLLECTIVES[kind].is_rooted])
def test_every_root_serves(kind: str) -> None:
    for root in briefly(range(6), f"roots of {kind}"):
        for decomposition in DECOMPOSITIONS:
            plan = natives(kind, {"nodes": 2, "ranks_per_node": 3}, root=root, count=4,
                           decomposition=decomposition)  # fmt: skip
            assert plan is not None
            verify(plan)
            check_result(plan)


def test_a_mesh_is_made_of_rows_and_columns() -> None:
    machine = {"nodes": 3, "ranks_per_node": 2}
    mesh = {"name": "mesh", "shape": [3, 2]}
    algorithms = {"row": "native", "column": "ring"}
    plan = compile_plan(
        make_spec("allreduce", algorithms, 0, machine, decomposition=mesh, count=9), is_proved=False
    )
    assert {phase.algorithm for phase in plan.phases if phase.role == "row"} == {"native"}
    assert {phase.algorithm for phase in plan.phases if phase.role == "column"} == {"ring"}
    verify(plan)
    check_result(plan)


def full_lane(kind: str = "allreduce", **fields: Any) -> Plan:
    machine = {"nodes": 2, "ranks_per_node": 3}
    fields = {"count": 7, "decomposition": "full_lane"} | fields
    return compile_plan(make_spec(kind, "native", 0, machine, **fields))


def test_a_component_is_a_task_per_rank_and_copies_where_memory_is_scattered() -> None:
    plan = full_lane()
    names = [str(phase) for phase in plan.phases]
    assert names == [
        "node reduce_scatter_block/native", "lane allreduce/native", "node allgather/native",
    ]  # fmt: skip
    assert np.bincount(plan.phase[plan.op == Op.CALL]).tolist() == [6, 6, 6]
    members = [[call.members for call in phase.calls] for phase in plan.phases]
    assert members == [[(0, 1, 2), (3, 4, 5)], [(0, 3), (1, 4), (2, 5)], [(0, 1, 2), (3, 4, 5)]]
    # What a lane combines, and what a node gathers, lies where the result belongs.
    assert np.bincount(plan.phase[plan.op == Op.COPY]).tolist() == [0, 6, 6]
    assert str(plan.task(1)) == "#1 rank 1: call in the rank's group 0 send[0:7] -> recv[3:5]"


def test_a_ranks_program_is_that_of_the_whole_plan(tmp_path: Path) -> None:
    for kind in ("allreduce", "scatter", "alltoall", "bcast"):
        plan = full_lane(kind)
        for rank in range(6):
            own = compile_plan(plan.spec, rank=rank)
            assert_equal(own, restrict(plan, rank))
            save(own, tmp_path / "own.npz")
            assert load(tmp_path / "own.npz").phases == own.phases


@pytest.mark.many
@looped("per_node", [[1, 2], [3, 1, 2], [2, 1, 1, 3]])
def test_a_rank_that_leads_several_groups_of_a_phase_calls_each(
    per_node: list[int], tmp_path: Path
) -> None:
    machine = {"nodes": len(per_node), "ranks_per_node": per_node, "lanes": 2}
    for kind in ("allreduce", "bcast", "allgather", "scan"):
        plan = compile_plan(
            make_spec(kind, "native", 0, machine, count=5, decomposition="full_lane"),
            is_proved=False,
        )
        assert any(1 in tags for phase in plan.phases for tags in phase.call_tags)
        verify(plan)
        check_result(plan)
        save(plan, tmp_path / "plan.npz")
        assert load(tmp_path / "plan.npz").phases == plan.phases
        for rank in range(plan.n_ranks):
            assert_equal(compile_plan(plan.spec, rank=rank), restrict(plan, rank))


def test_slices_make_their_own_calls() -> None:
    fields = {"decomposition": {"name": "guideline"}, "passes": [{"name": "slice_vector"}]}
    plan = compile_plan(make_spec("scan", "native", 4, count=5, **fields), is_proved=False)
    verify(plan)
    check_result(plan)


def test_calls_written_out_move_the_same_rows() -> None:
    plan = full_lane()
    written = write_out(plan)
    assert has_calls(plan)
    assert not has_calls(written)
    assert np.array_equal(written.rank[: plan.n_tasks], plan.rank)
    assert (write_barriers(plan).op != Op.REDUCE).all()
    assert write_out(written) is written
    assert [len(call.rows) for call in calls_of(plan)] == [3, 3, 2, 2, 2, 3, 3]
    assert set(COMBINING) == {kind for kind in REGULAR if COLLECTIVES[kind].has_op}
    assert set(CALLED) == set(REGULAR)


def test_segments_leave_calls_whole() -> None:
    passes = [{"name": "segment", "max_bytes": 16}]
    plan = full_lane(passes=passes, count=40)
    assert np.bincount(plan.phase[plan.op == Op.CALL]).tolist() == [6, 6, 6]
    assert np.bincount(plan.phase[plan.op == Op.COPY]).tolist()[1] > 6
    verify(plan)
    check_result(plan)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["prioritize", "limit_requests", "split_tree", "place_progress"])
def test_passes_that_do_not_know_calls_refuse_them(name: str) -> None:
    with pytest.raises(AlgorithmError, match=f"passes.{name}: it cannot rewrite calls"):
        full_lane(passes=[name])


def test_shared_memory_refuses_them() -> None:
    spec = make_spec("allreduce", "native", 4, count=8).replace(transport="shared")
    with pytest.raises(AlgorithmError, match=r"passes.share: it cannot rewrite calls of MPI's own"):
        compile_plan(spec)
