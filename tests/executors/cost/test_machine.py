"""Several cores, lanes and link classes: times worked out by hand."""

from __future__ import annotations

import pytest

from collplan.executors.cost import simulate, simulate_each
from collplan.executors.cost.critical_path import critical_rows
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.errors import DeadlockError
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Op
from collplan.specs import Link, Network, PlanSpec
from cost_schedules import LATE_RECEIVE, TWO_TO_TWO, network, on_machine

# L=100 o=10 g=20 G=1 between nodes: 101 bytes hold a core 10, a lane 120; the message arrives
# 110 after its send starts, and holds the receiver's core for 10 + 100.
BETWEEN = "L=100,o=10,g=20,G=1,O=0,S=1000"
INSIDE = Link(L_ns=7, o_ns=2, g_ns=3, G_ns_per_byte=0.5)


def test_ranks_of_a_node_share_its_lane() -> None:
    """Both sends are ready at 0; rank 1's waits for the lane until 20 + 100 = 120.

    Its message arrives at 120 + 110 = 230, when the receiving lane (110 + 120 = 230) is free
    again, and ends at 230 + 110 = 340.
    """
    timeline = simulate(on_machine(TWO_TO_TWO, [0, 0, 1, 1], [0, 1, 0, 1]), network(BETWEEN))
    assert timeline.start_ns[:2].tolist() == [0, 120]
    assert timeline.end_ns.tolist() == [10, 130, 220, 340]
    assert timeline.lane_busy_ns.tolist() == [[[240, 0]], [[0, 240]]]
    assert timeline.core_busy_ns.tolist() == [[10, 10], [110, 110]]
    assert critical_rows(timeline) == (0, 1, 3)
    assert repr(timeline) == "<Timeline: 4 tasks in 340.0 ns>"


def test_lanes_work_at_the_same_time() -> None:
    """With two lanes, chosen by the destination, nothing waits: both end at 220."""
    timeline = simulate(on_machine(TWO_TO_TWO, [0, 0, 1, 1], [0, 1, 0, 1], 2), network(BETWEEN))
    assert timeline.end_ns.tolist() == [10, 10, 220, 220]
    assert timeline.lane_busy_ns[0, :, 0].tolist() == [120, 120]
    assert timeline.lane_busy_ns[1, :, 1].tolist() == [120, 120]


def test_a_plan_may_use_the_first_lane_of_a_machine_alone() -> None:
    collective = {"kind": "bcast", "count": 64}
    ends = []
    for lanes in (1, ("1Gbit", "2Gbit", "4Gbit"), ("4Gbit", "2Gbit", "1Gbit")):
        machine = {"nodes": 2, "ranks_per_node": 1, "lanes": lanes}
        spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
        timeline = simulate(compile_plan(spec), network(BETWEEN))
        assert timeline.lane_busy_ns.shape[1] == 1
        ends.append(timeline.makespan_ns)
    assert ends[1] > ends[0] == ends[2]


def test_messages_inside_a_node_leave_its_lanes_alone() -> None:
    """From 0 to 1 on a node: sent at 0 (core until 2), there at 9, core until 9 + 2 + 0.5·10 = 16.

    Meanwhile rank 1 sends to rank 2 on another node from 0 to 10 over the idle lane, so the
    message waits for its core until 10 and ends at 10 + 7 = 17; there it arrives at 110 and
    ends at 110 + 10 + 10 = 130.
    """
    text = """
    num_ranks 3
    rank 0 {
    s: send 11b to 1
    }
    rank 1 {
    s: send 11b to 2
    r: recv 11b from 0
    }
    rank 2 {
    r: recv 11b from 1
    }
    """
    plan = on_machine(text, [0, 0, 1], [0, 1, 0])
    timeline = simulate(plan, network(BETWEEN, numa=INSIDE))
    assert timeline.end_ns.tolist() == [2, 10, 17, 130]
    assert timeline.lane_busy_ns.tolist() == [[[30, 0]], [[0, 30]]]


def test_ports_let_pairs_inside_a_node_talk_at_the_same_time() -> None:
    """All four ranks on one node: each pair has its own ports, both end at 9 + 2 + 50 = 61."""
    timeline = simulate(
        on_machine(TWO_TO_TWO, [0] * 4, [0, 1, 2, 3]), network(BETWEEN, numa=INSIDE)
    )
    assert timeline.end_ns.tolist() == [2, 2, 61, 61]


def test_ranks_on_one_core_take_turns() -> None:
    """Both sends on core 0: 0 to 2, then to 4; receivers share core 1: 9 to 61, then to 113."""
    plan = on_machine(TWO_TO_TWO, [0] * 4, [0, 0, 1, 1])
    timeline = simulate(plan, network(BETWEEN, numa=INSIDE))
    assert timeline.start_ns[:2].tolist() == [0, 2]
    assert timeline.end_ns.tolist() == [2, 4, 61, 113]


def test_one_core_has_links_of_its_own() -> None:
    """On one core the messages take the core's link, here free: 0 ns hold, there at once."""
    free = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=0)
    timeline = simulate(on_machine(TWO_TO_TWO, [0] * 4, [0] * 4), network(BETWEEN, core=free))
    assert timeline.makespan_ns == 0


def test_a_task_on_another_core_waits_for_the_end() -> None:
    """b runs on core 1 beside a (0 to 50); c on core 1 needs a's end, d only a's start.

    On core 1: b 0 to 5, then d 5 to 12, and c from 50 to 53.
    """
    text = """
    num_ranks 1
    rank 0 {
    a: calc 50
    b: calc 5 cpu 1
    c: calc 3 cpu 1
    c requires a
    d: calc 7 cpu 1
    d irequires a
    d requires b
    }
    """
    timeline = simulate(parse_goal(text), network(BETWEEN))
    assert timeline.start_ns.tolist() == [0, 0, 50, 5]
    assert timeline.end_ns.tolist() == [50, 5, 53, 12]
    assert critical_rows(timeline) == (0, 2)


def test_copies_and_reductions_hold_the_core_for_whole_nanoseconds() -> None:
    """10 bytes at 0.26 ns take 3 ns, at 1.21 ns 13, and at 0.7 ns 7 in spite of rounding errors."""
    plan = parse_goal("num_ranks 1\nrank 0 {\na: recv 10b from 0\nb: send 10b to 0\n}")
    for op, per_byte, hold in ((Op.COPY, 0.26, 3), (Op.REDUCE, 1.21, 13), (Op.COPY, 0.7, 7)):
        writes = plan.writes
        local = plan.replace(op=[op, Op.COMPUTE], peer=[-1, -1], tag=[-1, -1], writes=writes)
        costs = network(BETWEEN, copy_ns_per_byte=per_byte, reduce_ns_per_byte=per_byte)
        assert simulate(local, costs).makespan_ns == hold


def test_priority_goes_before_position() -> None:
    """Both calculations are ready at 0; the one of the lower priority number goes first."""
    plan = parse_goal("num_ranks 1\nrank 0 {\na: calc 5\nb: calc 3\n}")
    assert simulate(plan, network(BETWEEN)).start_ns.tolist() == [0, 5]
    first_b = plan.replace(priority=[1, 0])
    assert simulate(first_b, network(BETWEEN)).start_ns.tolist() == [3, 0]
    far_apart = plan.replace(priority=[2**30, -(2**30)])
    assert simulate(far_apart, network(BETWEEN)).start_ns.tolist() == [3, 0]


@pytest.mark.quick
@pytest.mark.parametrize("machine", [(4, 4, 2), (5, 3, 2), (8, 4, 2)], ids=str)
@pytest.mark.parametrize("eager_limit_bytes", [0, 1 << 20])
def test_nodes_that_do_the_same_take_the_same_time(
    machine: tuple[int, int, int], eager_limit_bytes: int
) -> None:
    """Messages of several nodes reach a lane at the same time, in an order that all nodes share.

    If one count numbers the tasks of all nodes, the order depends on the numbers of nodes.
    """
    nodes, per_node, lanes = machine
    plan = compile_plan(PlanSpec.model_validate({
        "machine": {"nodes": nodes, "ranks_per_node": per_node, "lanes": lanes},
        "collective": {"kind": "alltoall", "count": 1000}, "algorithms": "linear",
    }))  # fmt: skip
    costs = Network(eager_limit_bytes=eager_limit_bytes)
    last = [
        [timeline.end_ns[plan.node == node].max() for node in range(nodes)]
        for timeline in (simulate(plan, costs), simulate(plan.replace(spec=None), costs))
    ]
    assert len(set(last[0])) == 1
    assert len(set(last[1])) > 1


def test_rendezvous_ends_with_the_receive() -> None:
    """1,001 bytes: the receive is posted at 5,000, when the core is free; until then nothing ends.

    The message waits for the core as well and holds it from 5,000 for 10 + 1,000; the send is
    done when they match, at 5,000, and its follower runs from then on.
    """
    timeline = simulate(parse_goal(LATE_RECEIVE), network(BETWEEN))
    assert timeline.end_ns.tolist() == [5000, 5001, 5000, 6010]
    assert timeline.is_rendezvous.tolist() == [True, False, False, False]


def test_deadlock_names_tasks() -> None:
    """Two ranks that send before they receive: fine up to the eager limit, stuck above."""
    text = """
    num_ranks 2
    rank 0 {
    s: send 1001b to 1
    r: recv 1001b from 1
    r requires s
    }
    rank 1 {
    s: send 1001b to 0
    r: recv 1001b from 0
    r requires s
    }
    """
    plan = parse_goal(text)
    assert simulate(plan, network(BETWEEN, eager_limit_bytes=1001)).makespan_ns > 0
    with pytest.raises(DeadlockError, match=r"4 of 4 tasks can never run: #0 rank 0: send to 1"):
        simulate(plan, network(BETWEEN))


def test_many_networks_on_one_plan_are_as_one_by_one() -> None:
    """A network leaves nothing behind for the next, not even one with turns or handshakes."""
    plan = on_machine(TWO_TO_TWO, [0, 0, 1, 1], [0, 1, 0, 1])
    plain = network(BETWEEN)
    networks = [
        plain,
        plain.replace(eager_limit_bytes=10),
        plain.replace(eager_limit_bytes=10, handshake=True, turn_bytes=20),
        plain.replace(processors=1, strided_ns_per_byte=3),
        plain,
    ]
    for timeline, costs in zip(simulate_each(plan, networks), networks, strict=True):
        alone = simulate(plan, costs)
        assert timeline.start_ns.tolist() == alone.start_ns.tolist()
        assert timeline.end_ns.tolist() == alone.end_ns.tolist()
        assert critical_rows(timeline) == critical_rows(alone)
