"""prioritize: one order for all tasks, legal whatever the plan, and a good one."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.scheduling.limit_requests import limit_requests
from collplan.planner.passes.scheduling.message_graph import previous_on_link
from collplan.planner.passes.scheduling.prioritize import prioritize
from collplan.planner.passes.segment import segment
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.planner.plan.tags import MAX_TAGS
from collplan.planner.verify import verify
from collplan.specs import Network
from handmade import PlanBook, against_the_rows
from oracle import check_result, make_spec
from tiers import briefly

UNEVEN = {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2}
CLUSTER = {"nodes": 4, "ranks_per_node": 4, "lanes": 2}
SLOW_LANES = Network.model_validate(
    {
        "core": {"L_ns": 1000, "o_ns": 1000, "g_ns": 0, "G_ns_per_byte": 0.5},
        "numa": {"L_ns": 1000, "o_ns": 1000, "g_ns": 0, "G_ns_per_byte": 0.5},
        "node": {"L_ns": 1000, "o_ns": 1000, "g_ns": 0, "G_ns_per_byte": 0.5},
        "network": {"L_ns": 30000, "o_ns": 5000, "g_ns": 5000, "G_ns_per_byte": 83.6},
        "eager_limit_bytes": 0,
    }
)
"""Two lanes of 100 Mbit/s per node, and shared memory; every send waits for its receive."""


def assert_is_serial_order(plan: Plan) -> None:
    """Both ends of a message share a place, all else differs, and every edge leads forward."""
    sends, recvs = match_messages(plan)
    assert np.array_equal(plan.priority[sends], plan.priority[recvs])
    own = np.ones(plan.n_tasks, dtype=bool)
    own[recvs] = False
    assert np.array_equal(np.sort(plan.priority[own]), np.arange(own.sum()))
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    assert (plan.priority[plan.deps.task] < plan.priority[after]).all()


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_the_order_is_one_in_which_messages_can_run_one_after_another(kind):
    for n_ranks, machine in ((1, None), (4, None), (6, UNEVEN)):
        for algorithm in registry.legal(kind, n_ranks, commutative=True):
            for in_place in (False, True):
                whole = compile_plan(
                    make_spec(kind, algorithm.name, n_ranks, machine,
                              count=7, root=n_ranks - 1, in_place=in_place)
                )  # fmt: skip
                for plan in (whole, segment(whole, max_bytes=24)):
                    ordered = prioritize(plan)
                    assert_is_serial_order(ordered)
                    assert np.array_equal(ordered.deps.task, plan.deps.task)
                    assert prioritize(ordered) is ordered
                    verify(ordered)


def test_prioritized_plans_compute_the_same():
    passes = [{"name": "segment", "max_bytes": 16}, "prioritize", "limit_requests"]
    for kind in registry.kinds():
        for algorithm in briefly(registry.legal(kind, 6, commutative=True), f"orders {kind}"):
            spec = make_spec(kind, algorithm.name, 6, UNEVEN, count=5, root=3, passes=passes)
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)


def sends_of(plan: Plan, rank: int) -> list[tuple[int, int]]:
    """Return (dest, segment) of a rank's sends, in the order of their priority."""
    rows = np.flatnonzero((plan.op == Op.SEND) & (plan.rank == rank))
    rows = rows[np.argsort(plan.priority[rows])]
    n_sent: dict[int, int] = {}
    order = []
    for dest in plan.peer[rows].tolist():
        order.append((dest, n_sent.get(dest, 0)))
        n_sent[dest] = order[-1][1] + 1
    return order


def test_an_alltoall_serves_other_nodes_a_segment_at_a_time_nearest_first():
    spec = make_spec(
        "alltoall", "linear", 16, CLUSTER, count=300, datatype="int32",
        passes=[{"name": "segment", "max_bytes": 400}, "prioritize"],
    )  # fmt: skip
    plan = compile_plan(spec)
    for rank in range(16):
        order = sends_of(plan, rank)
        dests = [(rank + distance) % 16 for distance in range(1, 16)]
        dests = [dest for dest in dests if dest // 4 != rank // 4]
        expected = [(dest, turn) for turn in range(3) for dest in dests]
        assert [sent for sent in order if sent[0] in dests] == expected


def test_a_root_serves_its_ranks_a_segment_at_a_time():
    for kind, algorithm in (("scatter", "linear"), ("bcast", "linear")):
        spec = make_spec(
            kind, algorithm, 4, {"nodes": 4}, count=300, datatype="int32",
            passes=[{"name": "segment", "max_bytes": 400}, "prioritize"],
        )  # fmt: skip
        order = sends_of(compile_plan(spec), 0)
        assert order == [(dest, turn) for turn in range(3) for dest in (1, 2, 3)]


@pytest.mark.parametrize("machine", [{"nodes": 8}, {"ranks_per_node": 8}])
def test_a_tree_lets_no_child_starve(machine):
    """Binary tree of 8: child 1 has more below it than child 2, and is ahead, but not far.

        0
       / \\
      1   2
     / \\ / \\
    3  4 5  6
    |
    7
    """
    spec = make_spec(
        "bcast", "binary", 8, machine, count=1600, datatype="int32",
        passes=[{"name": "segment", "max_bytes": 400}, "prioritize"],
    )  # fmt: skip
    order = sends_of(compile_plan(spec), 0)
    assert len(order) == 32
    ahead = 0
    for dest, _ in order[:-8]:
        ahead += 1 if dest == 1 else -1
        assert 0 <= ahead <= 8


def test_what_has_most_behind_it_goes_first():
    """Rank 0 sends to 1, then to 2, which passes it on to 3: so 2 comes first.

    0 -> 1
    0 -> 2 -> 3
    """
    book = PlanBook([0, 1, 2, 3])
    place = [(Buffer.RECV, 0, 4)]
    to_1 = book.add(Op.SEND, 0, place, [], peer=1)
    to_2 = book.add(Op.SEND, 0, place, [], peer=2)
    book.add(Op.RECV, 1, [], place, peer=0)
    got = book.add(Op.RECV, 2, [], place, peer=0)
    to_3 = book.add(Op.SEND, 2, place, [], [got], peer=3)
    book.add(Op.RECV, 3, [], place, peer=2)
    plan = prioritize(book.plan())
    assert_is_serial_order(plan)
    assert plan.priority[to_2] < plan.priority[to_1] < plan.priority[to_3]


@pytest.mark.parametrize(
    ("kind", "algorithm", "tolerance"), [("alltoall", "linear", 1.01), ("allreduce", "ring", 1.01)]
)
def test_bounded_requests_keep_the_lanes_busy(kind, algorithm, tolerance):
    """With two sends in flight a plan is as fast as with any number."""
    count = 2**20 // (16 if kind == "alltoall" else 1)
    spec = make_spec(kind, algorithm, 16, CLUSTER, count=count, datatype="int32")
    free = segment(compile_plan(spec), "16KiB")
    bounded = limit_requests(prioritize(free))
    assert bounded is not free
    makespan = simulate(bounded, SLOW_LANES).makespan_s
    assert makespan <= tolerance * simulate(free, SLOW_LANES).makespan_s
    if kind == "alltoall":
        # 4 ranks per node send 3/4 of 4 MiB each over 2 lanes.
        assert makespan <= 1.01 * 4 * 2**22 * 3 / 4 / 2 * 83.6e-9


def test_messages_of_one_stream_keep_their_order():
    spec = make_spec(
        "bcast", "linear", 2, {"nodes": 2}, count=MAX_TAGS + 5, datatype="int8",
        passes=[{"name": "segment", "max_bytes": 1}],
    )  # fmt: skip
    plan = prioritize(compile_plan(spec))
    assert_is_serial_order(plan)
    verify(limit_requests(plan))


def test_messages_of_a_link_may_go_against_the_rows():
    """Rank 0's first send waits for the answer to its second."""
    plan, first, second, *_ = against_the_rows()
    assert previous_on_link(plan).tolist() == [-1, first] + [-1] * 4
    ordered = prioritize(plan)
    assert_is_serial_order(ordered)
    assert ordered.priority[second] < ordered.priority[first]


def crossing_starts() -> Plan:
    """Message b completes before a, though a starts first: legal, but not one after another."""
    book = PlanBook([0, 1])
    a, b = [(Buffer.RECV, 0, 1)], [(Buffer.RECV, 1, 1)]
    first = book.add(Op.SEND, 0, a, [], peer=1, tag=0)
    book.add(Op.SEND, 0, b, [], [(first, ON_START | INTENT)], peer=1, tag=1)
    got = book.add(Op.RECV, 1, [], b, peer=0, tag=1)
    book.add(Op.RECV, 1, [], a, [got], peer=0, tag=0)
    return book.plan()


@pytest.mark.parametrize("rewrite", [prioritize, limit_requests])
def test_plans_without_an_order_are_refused(rewrite):
    plan = crossing_starts()
    verify(plan)
    with pytest.raises(AlgorithmError, match=r"task #0 and 1 more cannot run one after another"):
        rewrite(plan)


def test_a_message_to_oneself_may_wait_for_its_other_end_to_start():
    book = PlanBook([0])
    one, two = [(Buffer.RECV, 0, 1)], [(Buffer.RECV, 1, 1)]
    recv = book.add(Op.RECV, 0, [], two, peer=0)
    book.add(Op.SEND, 0, one, [], [(recv, ON_START | INTENT)], peer=0)
    plan = prioritize(book.plan())
    assert plan.priority.tolist() == [0, 0]
    assert limit_requests(plan, 1, 1, 1) is plan


@pytest.mark.parametrize("rewrite", [prioritize, limit_requests])
def test_one_ranks_program_is_refused(rewrite):
    own = compile_plan(make_spec("bcast", "chain", 4, count=8), rank=1)
    with pytest.raises(AlgorithmError, match=rf"passes.{rewrite.__name__}: .* this is rank 1's"):
        rewrite(own)


def test_a_plan_without_tasks_stays_as_it_is():
    plan = compile_plan(make_spec("bcast", "chain", 4, count=0))
    assert prioritize(plan) is plan
    assert limit_requests(plan) is plan


def test_plans_with_all_passes_stay_within_96_bytes_a_task():
    for kind, algorithm in (("allreduce", "ring"), ("alltoall", "linear")):
        spec = make_spec(
            kind, algorithm, 64, {"nodes": 16, "ranks_per_node": 4, "lanes": 2}, count=640,
            passes=["segment", "prioritize", "limit_requests"],
        )  # fmt: skip
        plan = compile_plan(spec)
        assert plan.nbytes <= 96 * plan.n_tasks
