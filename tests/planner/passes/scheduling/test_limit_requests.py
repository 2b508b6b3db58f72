"""limit_requests: never more in flight than allowed, never a deadlock, nothing else changed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.scheduling.limit_requests import limit_requests
from collplan.planner.passes.scheduling.prioritize import prioritize
from collplan.planner.passes.segment import segment
from collplan.planner.plan.plan import Buffer, Op, Stage
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import PassChoice
from handmade import PlanBook, against_the_rows
from in_flight import most_in_flight
from looping import naming
from oracle import check_result, make_spec
from rank_programs import assert_equal
from staged_alltoalls import V2, V3, alltoall, check
from strategies import plan_specs
from tiers import briefly, examples

UNEVEN = {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2}
LIMITS = [(1, 1, 1), (2, 3, 8), (1, 0, 0), (0, 1, 0), (None, None, 1), (3, 2, 2)]


def plans_of(kind: str) -> list[Plan]:
    plans = []
    for n_ranks, machine in ((4, {"nodes": 4}), (6, UNEVEN)):
        for algorithm in registry.legal(kind, n_ranks, commutative=True):
            whole = compile_plan(
                make_spec(kind, algorithm.name, n_ranks, machine, count=7, root=n_ranks - 1),
                is_proved=False,
            )
            plans += [whole, segment(whole, max_bytes=24)]
    return plans


def assert_keeps(plan: Plan, limits: tuple[int | None, ...], rng: random.Random) -> None:
    for key, most in most_in_flight(plan, rng).items():
        if key == "step":
            continue
        limit = limits[{"remote": 0, "local": 1}.get(key[0], 2)]
        assert not limit or most <= limit, (key, most)


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_every_plan_keeps_limits_and_its_proof(kind):
    """Three of the limits for every plan, each in another order, in turns."""
    rng = random.Random(7)
    for turn, plan in briefly(enumerate(plans_of(kind)), f"limited {kind}"):
        for number, order in enumerate(("priority", None, "rows")):
            limits = LIMITS[(turn + 2 * number + turn // len(LIMITS)) % len(LIMITS)]
            options = {"order": order} if order == "rows" else {}
            with naming(plan.spec, plan.n_tasks, order, limits):
                ordered = prioritize(plan) if order == "priority" else plan
                limited = limit_requests(ordered, *limits, **options)
                verify(limited)
                assert_keeps(limited, limits, rng)
                assert limit_requests(limited, *limits, **options) is limited


@settings(max_examples=examples(30), deadline=None)
@given(
    plan_specs,
    st.tuples(*[st.integers(0, 4)] * 3),
    st.sampled_from(["priority", None, "rows"]),
    st.integers(0, 99),
)
def test_random_plans_keep_random_limits(spec, limits, order, seed):
    plan = compile_plan(spec)
    if order == "priority":
        plan = prioritize(plan)
    limited = limit_requests(plan, *limits, order="rows" if order == "rows" else None)
    verify(limited)
    rng = random.Random(seed)
    assert_keeps(limited, limits, rng)
    check_result(limited, order=rng)


@pytest.mark.many
@pytest.mark.parametrize("decomposition", ["full_lane", "hierarchical"])
@pytest.mark.parametrize("ranks_per_node", [[4, 4, 4, 4], [2, 2, 2], [5, 5, 2]])
def test_decomposed_plans_keep_limits_and_proof(decomposition, ranks_per_node):
    rng = random.Random(3)
    machine = {"nodes": len(ranks_per_node), "ranks_per_node": ranks_per_node, "lanes": 2}
    kinds = [kind for kind in registry.kinds() if kind != "barrier"]
    for kind in briefly(kinds, f"{decomposition} {ranks_per_node}"):
        spec = make_spec(
            kind, "auto", sum(ranks_per_node), machine, count=40, root=1, datatype="int32"
        ).replace(decomposition=decomposition)
        plan = segment(compile_plan(spec), max_bytes=64)
        for ordered in (plan, prioritize(plan)):
            for limits in ((2, 3, 8), (1, 1, 1)):
                limited = limit_requests(ordered, *limits)
                verify(limited)
                assert_keeps(limited, limits, rng)


def test_without_limits_there_is_more_in_flight():
    plan = compile_plan(
        make_spec("alltoall", "linear", 6, {"nodes": 2, "ranks_per_node": 3}, count=1)
    )
    free = most_in_flight(plan, random.Random(1))
    assert (free["remote", 0], free["local", 0]) == (3, 2)
    limited = limit_requests(plan, remote=2, local=1)
    most = most_in_flight(limited, random.Random(1))
    assert (most["remote", 0], most["local", 0]) == (2, 1)


def test_a_send_waits_for_the_completion_of_one_so_many_before_it():
    spec = make_spec("scatter", "linear", 6, {"nodes": 6}, count=1)
    limited = limit_requests(compile_plan(spec), remote=2)
    sends = np.flatnonzero(limited.op == Op.SEND)
    after = [limited.task(int(row)).after for row in sends]
    assert after == [(), (), *((int(row),) for row in sends[:3])]
    assert (limited.deps.kind == INTENT).all()


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_in_the_order_of_rows_each_rank_limits_its_own(kind):
    for algorithm in registry.legal(kind, 6, commutative=True):
        passes = [{"name": "limit_requests", "remote": 1, "local": 1, "order": "rows"}]
        spec = make_spec(kind, algorithm.name, 6, UNEVEN, count=7, root=4, passes=passes)
        plan = compile_plan(spec)
        for rank in range(6):
            assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


def test_an_order_of_rows_limits_no_node():
    plan = compile_plan(make_spec("alltoall", "linear", 6, UNEVEN, count=3))
    with pytest.raises(AlgorithmError, match=r"limit_requests\.node: with order rows each rank"):
        limit_requests(plan, node=2, order="rows")
    with pytest.raises(AlgorithmError, match=r"limit_requests\.order: .* use rows"):
        limit_requests(plan, order="priority")


@pytest.mark.quick
@pytest.mark.parametrize("limits", [(0, 0, 0), (None, None, None), (50, 50, 50)])
def test_limits_that_bind_nothing_leave_the_plan_alone(limits):
    plan = compile_plan(make_spec("alltoall", "linear", 6, UNEVEN, count=3))
    assert limit_requests(plan, *limits) is plan


def test_hazards_and_intents_stay_and_no_edge_is_doubled():
    for kind, algorithm in (
        ("barrier", "dissemination"),
        ("allgather", "ring"),
        ("bcast", "linear"),
    ):
        plan = compile_plan(make_spec(kind, algorithm, 6, UNEVEN, count=9))
        limited = limit_requests(plan, 1, 1, 1)
        assert len(limited.deps) > len(plan.deps)
        for row in range(plan.n_tasks):
            old = edges(plan, row)
            new = edges(limited, row)
            assert new[: len(old)] == old
            assert all(kind == INTENT for _, kind in new[len(old) :])
            assert len({before for before, _ in new}) == len(new)


def edges(plan: Plan, row: int) -> list[tuple[int, int]]:
    entries = slice(plan.deps.indptr[row], plan.deps.indptr[row + 1])
    return list(
        zip(plan.deps.task[entries].tolist(), plan.deps.kind[entries].tolist(), strict=True)
    )


def test_an_edge_on_start_becomes_one_on_completion():
    book = PlanBook([0, 1])
    a, b = [(Buffer.RECV, 0, 1)], [(Buffer.RECV, 1, 1)]
    first = book.add(Op.SEND, 0, a, [], peer=1, tag=0)
    second = book.add(Op.SEND, 0, b, [], [(first, ON_START | INTENT)], peer=1, tag=1)
    book.add(Op.RECV, 1, [], a, peer=0, tag=0)
    book.add(Op.RECV, 1, [], b, peer=0, tag=1)
    limited = limit_requests(book.plan(), remote=1)
    assert edges(limited, second) == [(first, INTENT)]


def test_rows_in_no_legal_order_get_the_nearest_legal_one():
    """Rank 0's first row can only be sent after its last: windows must not follow the rows."""
    plan, first, second, asked, got, last = against_the_rows()
    limited = limit_requests(plan, 1, 1, 1)
    verify(limited)
    assert edges(limited, first) == [(got, 0), (second, INTENT)]
    assert edges(limited, last) == [(asked, INTENT)]


def test_tasks_of_another_stage_are_counted_apart():
    book = PlanBook([0, 1])
    places = [[(Buffer.RECV, i, 1)] for i in range(3)]
    stages = (Stage.WAIT, Stage.START, Stage.WAIT)
    sends = [
        book.add(Op.SEND, 0, place, [], peer=1, tag=tag, stage=stage)
        for tag, (place, stage) in enumerate(zip(places, stages, strict=True))
    ]
    for tag, place in enumerate(places):
        book.add(Op.RECV, 1, [], place, peer=0, tag=tag)
    limited = limit_requests(book.plan(), remote=1)
    assert [edges(limited, row) for row in sends] == [[], [], [(sends[0], INTENT)]]


@pytest.mark.quick
@pytest.mark.parametrize("limit", [-1, 1.5, "2", True])
@pytest.mark.parametrize("name", ["remote", "local", "receives"])
def test_a_limit_is_a_number_of_at_least_0(name, limit):
    plan = compile_plan(make_spec("bcast", "chain", 3, count=1))
    with pytest.raises(AlgorithmError, match=rf"limit_requests.{name}: .* at least 0; use 0 for"):
        limit_requests(plan, **{name: limit})


def test_limits_come_from_specs():
    document = {"name": "limit_requests", "remote": None, "local": 1, "receives": 0}
    spec = make_spec("alltoall", "linear", 4, count=2, passes=["prioritize", document])
    plan = compile_plan(spec)
    assert most_in_flight(plan, random.Random(3))["local", 0] == 1
    with pytest.raises(AlgorithmError, match="sends: no such option; use remote, local, receives"):
        compile_plan(spec.replace(passes=({"name": "limit_requests", "sends": 1},)))


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("form", ["staged", "node_aware"])
def test_ranks_that_share_memory_keep_a_limit_of_their_node(form, most):
    """All lead, so without a limit a node has as many sends in flight as leaders, and more."""
    spec = alltoall("4x3", V3, {"name": "full_lane", "form": form})
    limit = PassChoice(name="limit_requests", options={"remote": 0, "local": 0, "node": most})
    free, plan = compile_plan(spec), check(spec.replace(passes=(*spec.passes, limit)))
    rng = random.Random(5)
    free_most = most_in_flight(free, rng, by_node=True)
    for node in range(4):
        assert (
            max(most_in_flight(plan, rng, by_node=True)["remote", node] for _ in range(3)) <= most
        )
        assert free_most["remote", node] >= 3
    assert limit_requests(plan, 0, 0, node=most) is plan


def test_a_limit_of_a_rank_and_of_its_node_hold_both():
    plan = compile_plan(alltoall("4x3", V2, {"name": "full_lane", "form": "staged"}))
    limited = limit_requests(plan, 1, 0, node=2)
    verify(limited)
    rng = random.Random(6)
    by_rank, by_node = (most_in_flight(limited, rng, by_node=which) for which in (False, True))
    assert all(by_rank["remote", rank] == 1 for rank in range(12))
    assert all(by_node["remote", node] <= 2 for node in range(4))


def test_a_limit_of_a_node_needs_shared_memory_or_one_sender():
    many = compile_plan(
        make_spec("alltoall", "linear", 4, {"nodes": 2, "ranks_per_node": 2}, count=3)
    )
    with pytest.raises(AlgorithmError, match=r"node: ranks 1 and 0 share a node but no memory"):
        limit_requests(many, 0, 0, node=1)
    one = compile_plan(make_spec("alltoall", "linear", 4, {"nodes": 4}, count=3))
    limited = limit_requests(one, 0, 0, 0, node=1)
    assert np.array_equal(limited.deps.task, limit_requests(one, 1, 0, 0).deps.task)
