"""Costs of a cluster beyond LogGPS: times worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.executors.cost.critical_path import breakdown, critical_rows, legs
from collplan.planner import compile_plan
from collplan.planner.collective.bounds import lower_bounds
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START, Extents
from collplan.specs import Link, Network, Nic, PlanSpec, parse_spec
from cost_schedules import network, on_machine, sending_to

# As in test_cost_machine.py: 101 bytes hold a core 10, a lane 120; the message arrives 110 after
# its send starts, and holds the receiver's core for 10 + 100.
BETWEEN = "L=100,o=10,g=20,G=1,O=0,S=1000"
GAPLESS = "L=100,o=10,g=0,G=1,O=0,S=1000"
ONE_MESSAGE = "num_ranks 2\nrank 0 {\ns: send 101b to 1\n}\nrank 1 {\nr: recv 101b from 0\n}"
LONG_MESSAGE = """
num_ranks 2
rank 0 {
s: send 1001b to 1
}
rank 1 {
busy: calc 5000 cpu 1
r: recv 1001b from 0
r requires busy
}
"""


def offloading(text: str = BETWEEN, **changes: Any) -> Network:
    costs = network(text)
    return costs.replace(network=costs.network.replace(offload=True), **changes)


def copies(counts: list[int], **machine: Any) -> Plan:
    """Return a plan in which every rank copies its vector to itself; rank i of counts[i] bytes."""
    lines = [f"rank {i} {{\nc: calc 1 cpu {i}\n}}" for i in range(len(counts))]
    plan = parse_goal(f"num_ranks {len(counts)}\n" + "\n".join(lines))
    n = len(counts)
    sent, received = (
        Extents(
            indptr=np.arange(n + 1, dtype=np.int32),
            buffer=np.full(n, buffer, dtype=np.int8),
            offset=np.zeros(n, dtype=np.int64),
            count=np.array(counts, dtype=np.int64),
            pattern=np.zeros(n, dtype=np.int32),
        )
        for buffer in (Buffer.SEND, Buffer.RECV)
    )
    return plan.replace(
        op=[Op.COPY] * n,
        reads=sent,
        writes=received,
        buffer_sizes=np.column_stack((counts, counts, np.zeros(n, dtype=np.int64))),
        **machine,
    )


class TestOffload:
    def test_bytes_keep_the_lane_but_not_the_core(self) -> None:
        """There at 110, the last byte at 110 + 100, handled by 220; the core is busy for o only."""
        timeline = simulate(parse_goal(ONE_MESSAGE), offloading())
        assert timeline.end_ns.tolist() == [10, 220]
        assert timeline.core_busy_ns.tolist() == [[10], [10]]
        assert timeline.lane_busy_ns[1, 0, 1] == 120

    def test_a_busy_core_lets_the_bytes_in_but_handles_them_later(self) -> None:
        """Arrived by 210, while the core computes until 300: done at 310."""
        text = ONE_MESSAGE.replace("rank 1 {", "rank 1 {\nbusy: calc 300")
        timeline = simulate(parse_goal(text), offloading())
        assert timeline.end_ns.tolist() == [10, 300, 310]
        assert critical_rows(timeline) == (1, 2)

    def test_overhead_a_byte_counts_where_it_is_longer(self) -> None:
        """Held for 10 + 100·2 = 210 from 110 on; the sender's core too."""
        costs = offloading()
        costs = costs.replace(network=costs.network.replace(O_ns_per_byte=2))
        assert simulate(parse_goal(ONE_MESSAGE), costs).end_ns.tolist() == [210, 320]


class TestHandshake:
    def test_a_long_message_asks_first(self) -> None:
        """The request is there at 110, the answer back at 220; then 110 + 10 + 1000 more."""
        text = LONG_MESSAGE.replace("r requires busy\n", "")
        timeline = simulate(parse_goal(text), network(BETWEEN, handshake=True))
        assert timeline.start_ns[0] == 220
        assert timeline.end_ns[[0, 2]].tolist() == [1240, 1340]
        assert timeline.is_asking.tolist() == [True, False, False]
        assert not timeline.is_rendezvous.any()

    def test_a_late_receive_lets_it_wait(self) -> None:
        """Posted at 5000, the answer is back at 5110, and the message in at 5110 + 110 + 1010."""
        timeline = simulate(parse_goal(LONG_MESSAGE), network(BETWEEN, handshake=True))
        assert timeline.start_ns[0] == 5110
        assert timeline.end_ns[2] == 6230
        assert critical_rows(timeline) == (1, 2, 0, 2)

    def test_the_sender_is_free_meanwhile(self) -> None:
        """A short message behind a long one that waits leaves at once."""
        text = """
        num_ranks 3
        rank 0 {
        long: send 1001b to 1
        short: send 1b to 2
        }
        rank 1 {
        busy: calc 5000 cpu 1
        r: recv 1001b from 0
        r requires busy
        }
        rank 2 {
        r: recv 1b from 0
        }
        """
        timeline = simulate(parse_goal(text), network(BETWEEN, handshake=True))
        assert timeline.end_ns[-1] == 120

    def test_short_messages_do_not_ask(self) -> None:
        plan = parse_goal(ONE_MESSAGE)
        asking, plain = (simulate(plan, network(BETWEEN, handshake=h)) for h in (True, False))
        assert asking.end_ns.tolist() == plain.end_ns.tolist()


class TestProcessors:
    def test_ranks_take_turns_on_fewer_processors(self) -> None:
        """Three computations of 50 on two processors: the third begins when the first is done."""
        lines = [f"rank {i} {{\nc: calc 50\n}}" for i in range(3)]
        plan = parse_goal("num_ranks 3\n" + "\n".join(lines))
        timeline = simulate(plan, network(BETWEEN, processors=2))
        assert timeline.end_ns.tolist() == [50, 50, 100]
        assert critical_rows(timeline) in ((0, 2), (1, 2))

    def test_a_message_leaves_when_its_sender_gets_the_processor(self) -> None:
        """Rank 0 has it until 300, then rank 1 until 301; the message is in 220 later."""
        text = """
        num_ranks 3
        rank 0 {
        c: calc 300
        }
        rank 1 {
        c: calc 1
        s: send 101b to 2
        s requires c
        }
        rank 2 {
        r: recv 101b from 1
        }
        """
        timeline = simulate(parse_goal(text), network(BETWEEN, processors=1))
        assert timeline.end_ns.tolist() == [300, 301, 311, 521]
        assert critical_rows(timeline) == (0, 1, 2, 3)

    def test_more_processors_than_cores_need_no_memory(self) -> None:
        plan = parse_goal(ONE_MESSAGE)
        many, none = (
            simulate(plan, network(BETWEEN, processors=number)) for number in (2**31 - 1, None)
        )
        assert many.end_ns.tolist() == none.end_ns.tolist()

    def test_as_many_processors_as_cores_change_nothing(self) -> None:
        spec = PlanSpec.model_validate(
            {
                "machine": {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
                "collective": {"kind": "alltoall", "count": 100},
            }
        )
        plan = compile_plan(spec)
        timelines = [simulate(plan, Network(processors=n)) for n in (None, 6)]
        assert timelines[0].end_ns.tolist() == timelines[1].end_ns.tolist()
        assert simulate(plan, Network(processors=1)).makespan_ns > timelines[0].makespan_ns


class TestMemory:
    def test_cores_of_a_node_share_its_memory(self) -> None:
        """Two copies of 100 bytes: each core needs 100, the memory 80 for each, one by one."""
        costs = network(BETWEEN, copy_ns_per_byte=1.0, memory_ns_per_byte=0.8)
        plan = copies([100, 100], rank_node=np.array([0, 0]))
        plan = plan.replace(
            rank_core=np.array([0, 1]), core=np.array([0, 1]), shared_sizes=np.zeros(1, np.int64)
        )
        assert sorted(simulate(plan, costs).end_ns.tolist()) == [100, 160]
        apart = copies([100, 100])
        assert simulate(apart, costs).end_ns.tolist() == [100, 100]

    def test_messages_inside_a_node_use_it(self) -> None:
        """There at 110, the core is held until 220; the memory needs 101·5 from 110 on."""
        plan = on_machine(ONE_MESSAGE, [0, 0], [0, 1])
        timeline = simulate(plan, network(BETWEEN, memory_ns_per_byte=5.0))
        assert timeline.end_ns.tolist() == [10, 110 + 505]

    def test_buffers_beyond_the_cache_cost_more(self) -> None:
        """100 and 40 bytes, each read and written: only the 200 exceed a cache of 100."""
        costs = network(BETWEEN, copy_ns_per_byte=1.0, cache_bytes=100, uncached_ns_per_byte=2.0)
        assert simulate(copies([100, 40]), costs).end_ns.tolist() == [300, 40]

    @pytest.mark.parametrize("strided", [False, True])
    def test_bytes_in_pieces_cost_more(self, strided: bool) -> None:
        """A message of ten pieces: 2 ns per byte at both ends, the whole message alike."""
        plan = parse_goal(ONE_MESSAGE)
        if strided:
            patterns = np.vstack((plan.patterns, [[20, 101, 0, 1]]))
            changed = {}
            for name in ("reads", "writes"):
                extents = getattr(plan, name)
                changed[name] = type(extents)(
                    extents.indptr, extents.buffer, extents.offset,
                    np.ones_like(extents.count), np.ones_like(extents.pattern),
                )  # fmt: skip
            plan = plan.replace(patterns=patterns, **changed)
        more = 202 if strided else 0
        costs = network(BETWEEN, strided_ns_per_byte=2.0)
        costs = costs.replace(network=costs.network.replace(O_ns_per_byte=1))
        assert simulate(plan, costs).end_ns.tolist() == [110 + more, 220 + more]


class TestConnections:
    def fetches(self, destinations: list[int], room: int) -> int:
        """Return how many of rank 0's sends, one after another, miss."""
        nic = Nic(connections=room, miss_ns=1000)
        busy = simulate(sending_to(destinations), network(BETWEEN, nic=nic)).lane_busy_ns[0, 0, 0]
        return int((busy - 20 * len(destinations)) // 1000)

    def test_the_least_recently_used_goes_first(self) -> None:
        assert self.fetches([1, 2, 1, 3, 1, 2], room=2) == 4
        assert self.fetches([1, 2, 1, 3, 1, 2], room=3) == 3
        assert self.fetches([1, 1, 1, 1], room=1) == 1
        assert self.fetches([1, 2, 1, 2], room=1) == 4

    @pytest.mark.quick
    @pytest.mark.parametrize("room", [1, 2, 3, 5, 8])
    def test_it_agrees_with_a_list(self, room: int) -> None:
        destinations = [int(i) for i in np.random.default_rng(room).integers(1, 9, 300)]
        cached: list[int] = []
        n_missing = 0
        for rank in destinations:
            if rank in cached:
                cached.remove(rank)
            else:
                n_missing += 1
                cached = cached[-room + 1 :] if room > 1 else []
            cached.append(rank)
        assert self.fetches(destinations, room) == n_missing

    def test_a_fetch_delays_the_message(self) -> None:
        nic = Nic(connections=1, miss_ns=1000)
        timeline = simulate(parse_goal(ONE_MESSAGE), network(BETWEEN, nic=nic))
        assert timeline.end_ns.tolist() == [10, 1220]

    def test_messages_inside_a_node_need_none(self) -> None:
        nic = Nic(connections=1, miss_ns=1000)
        plan = on_machine(ONE_MESSAGE, [0, 0], [0, 1])
        inside = Link(L_ns=7, o_ns=2, g_ns=3, G_ns_per_byte=0.5)
        timeline = simulate(plan, network(BETWEEN, nic=nic, numa=inside))
        assert timeline.end_ns.tolist() == [2, 61]


class TestTurns:
    TO_TWO = """
    num_ranks 3
    rank 0 {
    a: send 1000b to 1
    b: send 1000b to 2
    }
    rank 1 {
    r: recv 1000b from 0
    }
    rank 2 {
    r: recv 1000b from 0
    }
    """

    @pytest.mark.quick
    @pytest.mark.parametrize("offload", [False, True])
    @pytest.mark.parametrize("handshake", [False, True])
    @pytest.mark.parametrize("n_bytes", [1, 100, 101, 1001, 4321])
    def test_a_message_alone_takes_no_longer(
        self, n_bytes: int, handshake: bool, offload: bool
    ) -> None:
        plan = parse_goal(ONE_MESSAGE.replace("101b", f"{n_bytes}b"))
        costs = network(GAPLESS, handshake=handshake)
        costs = costs.replace(network=costs.network.replace(offload=offload))
        alone, by_turns = (simulate(plan, costs.replace(turn_bytes=n)) for n in (None, 100))
        assert by_turns.makespan_ns == alone.makespan_ns
        assert by_turns.start_ns.tolist() == alone.start_ns.tolist()
        assert by_turns.lane_busy_ns.tolist() == alone.lane_busy_ns.tolist()
        assert critical_rows(by_turns) == critical_rows(alone)

    def test_connections_share_a_lane(self) -> None:
        """Both are in at the end, a turn apart; one after the other the first had half the time."""
        plan = parse_goal(self.TO_TWO)
        alone, by_turns = (simulate(plan, offloading(GAPLESS, turn_bytes=n)) for n in (None, 100))
        ends = by_turns.end_ns[by_turns.partner[:2]]
        assert ends[1] - ends[0] == 100
        assert by_turns.makespan_ns == alone.makespan_ns
        assert alone.end_ns[alone.partner[0]] < 0.6 * alone.makespan_ns

    def test_a_connection_keeps_its_order(self) -> None:
        """Two messages of one pair follow each other, as without turns."""
        text = self.TO_TWO.replace("b: send 1000b to 2", "b: send 1000b to 1 tag 1")
        text = text.replace("r: recv 1000b from 0\n    }\n    rank 2 {\n    r: recv 1000b from 0",
                            "r: recv 1000b from 0\n    s: recv 1000b from 0 tag 1")  # fmt: skip
        plan = parse_goal(text.replace("num_ranks 3", "num_ranks 2"))
        alone, by_turns = (simulate(plan, offloading(GAPLESS, turn_bytes=n)) for n in (None, 100))
        assert by_turns.end_ns[2:].tolist() == alone.end_ns[2:].tolist()

    @pytest.mark.quick
    @pytest.mark.parametrize("kind", ["bcast", "allreduce", "alltoall", "scan"])
    @pytest.mark.parametrize("handshake", [False, True])
    def test_plans_stay_whole(self, kind: str, handshake: bool) -> None:
        """Every task runs after what it waits for, on busy lanes of the same length."""
        spec = PlanSpec.model_validate(
            {
                "machine": {"nodes": 3, "ranks_per_node": 2, "lanes": 2},
                "collective": {"kind": kind, "count": 9_000},
                "decomposition": "full_lane",
            }
        )
        plan = compile_plan(spec)
        costs = Network(handshake=handshake, processors=3)
        whole, cut = (simulate(plan, costs.replace(turn_bytes=n)) for n in (None, 1000))
        assert np.allclose(whole.lane_busy_ns, cut.lane_busy_ns)
        after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
        before, kinds = plan.deps.task, plan.deps.kind
        earliest = np.where(kinds & ON_START, cut.start_ns[before], cut.end_ns[before])
        assert (cut.start_ns[after] >= earliest).all()
        assert (cut.partner == whole.partner).all()
        assert critical_rows(cut)[-1] == np.argmax(cut.end_ns)
        assert 0.5 < cut.makespan_ns / whole.makespan_ns < 2


def test_lanes_are_idle_before_a_plan_starts_so_its_first_bytes_pass_as_a_burst() -> None:
    lane = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 10, "offload": True}
    times = {}
    for burst in (0, 1000):
        spec = parse_spec(
            {
                "machine": {"nodes": 2, "network": {"network": lane, "burst_bytes": burst}},
                "collective": {"kind": "bcast", "count": 3001, "datatype": "uint8"},
                "algorithms": "binomial",
            }
        )
        times[burst] = simulate(compile_plan(spec)).makespan_ns
        assert lower_bounds(spec).time_s * 1e9 == pytest.approx(30_010 - 10 * burst)
    assert times == {0: 30_000, 1000: 20_000}


@pytest.mark.parametrize("turn_bytes", [None, 100])
def test_slow_lanes_take_longer_for_every_byte(turn_bytes: int | None) -> None:
    """Two ranks on either lane send a neighbor 1,000 bytes each."""
    made = {}
    for lanes in (2, ["10Mbit", "10Mbit"], ["40Mbit", "10Mbit"], ["10Mbit", "40Mbit"]):
        spec = parse_spec(
            {
                "machine": {"nodes": 2, "ranks_per_node": 2, "lanes": lanes},
                "collective": {"kind": "gather", "count": 1000, "datatype": "int8"},
                "decomposition": "full_lane",
            }
        )
        costs = network(BETWEEN, turn_bytes=turn_bytes)
        made[str(lanes)] = simulate(compile_plan(spec), costs).lane_busy_ns[:, :, 1].tolist()
    alike, twins, first, second = made.values()
    # g = 20, and 999 bytes at G = 1.
    assert alike == twins == [[1019, 1019], [0, 0]]
    assert first == [[1019, 20 + 4 * 999], [0, 0]]
    assert second == [[20 + 4 * 999, 1019], [0, 0]]


def test_a_critical_path_knows_slow_lanes() -> None:
    spec = parse_spec(
        {
            "machine": {"nodes": 2, "ranks_per_node": 2, "lanes": ["40Mbit", "10Mbit"]},
            "collective": {"kind": "gather", "count": 1000, "datatype": "int8"},
            "decomposition": "full_lane",
        }
    )
    costs = offloading()
    timeline = simulate(compile_plan(spec), costs)
    parts = breakdown(legs(timeline, costs))
    assert sum(parts.values()) == pytest.approx(timeline.makespan_ns)
    assert parts["bandwidth"] >= 4 * 999
