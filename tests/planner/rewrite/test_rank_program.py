"""One rank's rows of a plan are what compiling for that rank gives."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.executors.mpi.program.program import rank_program
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.plan.ragged import ON_START
from collplan.planner.plan.tags import MAX_TAGS
from collplan.planner.rewrite.rank_program import restrict
from covering import pairs
from handmade import PlanBook
from looping import looped, naming
from oracle import make_spec
from rank_programs import assert_equal
from tiers import briefly

MACHINE = {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2}


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_a_restriction_is_what_compiling_for_the_rank_gives(kind):
    """Ranks, segments and calls in place in turns."""
    segment = {"name": "segment", "max_bytes": 16}
    for n_ranks, machine in ((6, MACHINE), (4, None)):
        algorithms = enumerate(registry.legal(kind, n_ranks, commutative=True))
        for turn, algorithm in briefly(algorithms, f"restricted {kind} {n_ranks}"):
            for i, passes in enumerate(((), (segment,))):
                spec = make_spec(
                    kind, algorithm.name, n_ranks, machine, count=5, root=n_ranks - 2,
                    in_place=(turn // 2 + i) % 2 == 1, passes=passes,
                )  # fmt: skip
                plan = compile_plan(spec, is_proved=False)
                for rank in range((turn + i) % 2, n_ranks, 2):
                    with naming(algorithm.name, n_ranks, passes, rank):
                        own = restrict(plan, rank)
                        check_format(own)
                        assert_equal(own, compile_plan(spec, rank=rank))


@pytest.mark.parametrize("decomposition", ["full_lane", "hierarchical"])
def test_decomposed_plans_are_restricted_alike(decomposition):
    kinds = [kind for kind in registry.kinds() if kind != "barrier"]
    for kind in briefly(kinds, f"restricted {decomposition}"):
        spec = make_spec(
            kind, "auto", 6, MACHINE, count=5, root=4,
            passes=[{"name": "segment", "max_bytes": 16}],
        ).replace(decomposition=decomposition)  # fmt: skip
        plan = compile_plan(spec, is_proved=False)
        for rank in range(6):
            assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.many
@pytest.mark.parametrize("count", [0, 3, 7, 16])
@pytest.mark.parametrize("shape", [(4, 4), (2, 8), (8, 2)])
def test_columns_that_are_left_out_change_nothing(shape, count):
    machine = {"nodes": 4, "ranks_per_node": 4, "lanes": 2}
    for kind in registry.kinds():
        if kind == "barrier":
            continue
        spec = make_spec(kind, "auto", 16, machine, count=count, root=5)
        spec = spec.replace(decomposition={"name": "mesh", "shape": shape})
        plan = compile_plan(spec)
        for rank in (0, 5, 15):
            assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.many
@pytest.mark.long
@looped("case", pairs({"root": [0, 5, 10], "order": ["block", "cyclic"], "leaders": [1, 2, 3, 4]}))
def test_leaders_of_even_nodes_are_restricted_alike(case):
    leaders, order, root = case["leaders"], case["order"], case["root"]
    machine = {"nodes": 3, "ranks_per_node": 4, "lanes": 2, "rank_order": order}
    for kind in registry.kinds():
        if kind == "barrier" or (order == "cyclic" and kind in ("scan", "exscan")):
            continue
        spec = make_spec(kind, "auto", 12, machine, count=5, root=root)
        spec = spec.replace(decomposition={"name": "multi_leader", "leaders": leaders})
        plan = compile_plan(spec, is_proved=False)
        for rank in range(root % 4, 12, 4):
            assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("passes", [
    ({"name": "place_progress", "policy": "numa"}, "add_compute"),
    ({"name": "split_tree", "levels": 1}, "add_compute"),
    ({"name": "segment", "max_bytes": 16}, "add_compute", "place_progress"),
])  # fmt: skip
def test_passes_for_overlap_are_restricted_alike(passes, transport):
    machine = MACHINE | {"cores": 5, "numa_domains": 2}
    for kind, name in (
        ("reduce", "binomial"),
        ("scatter", "linear"),
        ("allreduce", "reduce_bcast"),
    ):
        spec = make_spec(kind, name, 6, machine, count=5, root=4, passes=passes)
        spec = spec.replace(transport=transport)
        plan = compile_plan(spec)
        for rank in range(6):
            assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


def test_patterns_are_those_the_rank_uses():
    plan = compile_plan(make_spec("alltoall", "bruck", 12, count=4))
    spec = plan.spec
    for rank in range(12):
        assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))
    assert len(plan.patterns) > 1


def test_streams_keep_their_order():
    spec = make_spec(
        "bcast", "linear", 2, count=MAX_TAGS + 5, datatype="int8",
        passes=[{"name": "segment", "max_bytes": 1}],
    )  # fmt: skip
    own = restrict(compile_plan(spec), 1)
    assert len(own.deps) == 5
    assert_equal(own, compile_plan(spec, rank=1))


def test_the_executor_takes_the_same_program_out_of_both():
    plan = compile_plan(
        make_spec("allreduce", "ring", 6, MACHINE, count=40,
                  passes=[{"name": "segment", "max_bytes": 16}])
    )  # fmt: skip
    for rank in range(6):
        whole, own = rank_program(plan, rank), rank_program(restrict(plan, rank), rank)
        assert np.array_equal(whole.n_before, own.n_before)
        assert np.array_equal(whole.on_completion.task, own.on_completion.task)
        assert np.array_equal(whole.tag, own.tag)


def test_a_rank_without_tasks_has_an_empty_program():
    plan = compile_plan(make_spec("gather", "linear", 3, count=0))
    own = restrict(plan, 2)
    assert own.n_tasks == 0
    assert_equal(own, compile_plan(plan.spec, rank=2))


def test_restricting_twice_changes_nothing():
    own = restrict(compile_plan(make_spec("bcast", "chain", 3, count=4)), 1)
    assert restrict(own, 1) is own


def test_refusals_say_whose_program_it_is():
    plan = compile_plan(make_spec("bcast", "chain", 3, count=4))
    with pytest.raises(AlgorithmError, match="3 is not one of the plan's 3 ranks"):
        restrict(plan, 3)
    with pytest.raises(AlgorithmError, match="program of rank 0, not of rank 1"):
        restrict(restrict(plan, 0), 1)


def test_a_program_names_what_it_waits_for_in_others():
    book = PlanBook([0, 0])
    place = [(Buffer.RECV, 0, 1)]
    book.add(Op.COMPUTE, 1, [], [])
    book.add(Op.COMPUTE, 0, [], [])
    first = book.add(Op.COPY, 0, place, place)
    book.add(Op.COPY, 1, place, place, after=[0, first])
    plan = book.plan()
    ahead, behind = restrict(plan, 0), restrict(plan, 1)
    check_format(ahead)
    check_format(behind)
    assert (ahead.foreign.awaited.tolist(), len(ahead.foreign)) == ([1], 0)
    assert (behind.deps.task.tolist(), behind.foreign.indptr.tolist()) == ([0], [0, 0, 1])
    waits = (behind.foreign.rank, behind.foreign.task, behind.foreign.flag)
    assert [column.tolist() for column in waits] == [[0], [1], [0]]


def test_nobody_is_told_of_starts():
    book = PlanBook([0, 0])
    first = book.add(Op.COMPUTE, 0, [], [])
    book.add(Op.COMPUTE, 1, [], [], after=[(first, ON_START)])
    with pytest.raises(AlgorithmError, match="task #1 of rank 1 waits for the start of task #0 of"):
        restrict(book.plan(), 1)
