"""Is a faster machine faster? Always, sometimes, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.cost import simulate
from collplan.executors.cost.critical_path import critical_rows
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.specs import Link, Network
from cost_networks import MANY_BYTES, PLAIN, clustered, networks, plans, schedules, simulated
from cost_schedules import network, on_machine
from oracle import make_spec
from tiers import examples

FREE = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=0)
LETTERS = ("L_ns", "o_ns", "g_ns", "G_ns_per_byte", "O_ns_per_byte")
MEMORY = ("copy_ns_per_byte", "reduce_ns_per_byte", "strided_ns_per_byte", "uncached_ns_per_byte")

# Node 0 sends to rank 4, then to rank 1, over one lane. Rank 3 tells rank 1, on its node and
# free of charge, to send to rank 2.
ANOMALY = """
num_ranks 5
rank 0 {
first: send 201b to 4
long: send 3001b to 1
}
rank 1 {
go: recv 1b from 3
on: send 3001b to 2
on requires go
r: recv 3001b from 0
}
rank 2 {
r: recv 3001b from 1
}
rank 3 {
c: calc 507
go: send 1b to 1
go requires c
}
rank 4 {
r: recv 201b from 0
}
"""


def anomaly_ns(letters: str = "L=200,o=10,g=100,G=1", text: str = ANOMALY, lanes: int = 1) -> float:
    plan = on_machine(text, [0, 1, 2, 1, 1], [0, 0, 0, 2, 1], lanes)
    return simulate(plan, network(f"{letters},O=0,S=100000", numa=FREE)).makespan_ns


def test_a_faster_machine_can_be_slower() -> None:
    """Rank 1's core takes what comes first: a send of 10 ns, or an arrival of 3,010 ns.

    The first message keeps the lane for 100 + 200, so the long one arrives at 300 + 10 + 200 =
    510. Rank 1 has been told to send at 507: it sends first, until 517, takes the long message in
    until 3,527, and its own is in at 507 + 210 + 3,010 = 3,727.

    Whatever lets the long message arrive at 507 or sooner keeps rank 1's core until then + 3,010,
    and rank 2 gets its bytes after that. With L = 190: 500 + 3,010 + 200 + 3,010 = 6,720.
    """
    assert anomaly_ns() == 3727
    assert anomaly_ns("L=190,o=10,g=100,G=1") == 6720
    assert anomaly_ns("L=200,o=5,g=100,G=1") == 6720
    assert anomaly_ns("L=200,o=10,g=90,G=1") == 6730
    assert anomaly_ns("L=200,o=10,g=100,G=0.9") == 6120
    assert anomaly_ns(lanes=2) == 6450
    assert anomaly_ns(text=ANOMALY.replace("201b", "101b")) == 6640


def test_it_is_the_core_that_chooses_badly() -> None:
    """An arrival keeps the core for 10 ns where adapters write memory, and nothing is lost."""
    makespans = []
    for latency in (200, 190):
        costs = network(f"L={latency},o=10,g=100,G=1,O=0,S=100000", numa=FREE)
        costs = costs.replace(network=costs.network.replace(offload=True))
        plan = on_machine(ANOMALY, [0, 1, 2, 1, 1], [0, 0, 0, 2, 1])
        makespans.append(simulate(plan, costs).makespan_ns)
    assert makespans[1] <= makespans[0] + 10


def slowed(costs: Network, factor: int) -> Network:
    """Return a network on which everything takes `factor` times as long."""
    links = {
        name: (link := getattr(costs, name)).replace(
            **{letter: getattr(link, letter) * factor for letter in LETTERS}
        )
        for name in ("core", "numa", "node", "network")
    }
    nic = costs.nic
    if nic is not None:
        fields = ("miss_ns", "reconnect_ns", "packet_ns")
        nic = nic.replace(**{name: getattr(nic, name) * factor for name in fields})
    rates = {name: getattr(costs, name) * factor for name in (*MEMORY, "memory_ns_per_byte")}
    return costs.replace(**links, **rates, nic=nic, switch_s=costs.switch_s * factor)


@settings(max_examples=examples(60), deadline=None)
@given(plans, networks, st.sampled_from([2, 3, 4, 64]))
def test_all_times_scale_together(plan: Plan, costs: Network, factor: int) -> None:
    """Exactly: rates are made whole first, so that no copy is rounded."""
    costs = slowed(costs, 4)
    plan, costs, fast = simulated(plan, costs)
    longer = plan.replace(duration_ns=plan.duration_ns * factor)
    slow = simulate(longer, slowed(costs, factor))
    assert np.array_equal(slow.start_ns, fast.start_ns * factor)
    assert np.array_equal(slow.end_ns, fast.end_ns * factor)
    assert critical_rows(slow) == critical_rows(fast)


def serial_plans(algorithms: list[tuple[str, str]]) -> st.SearchStrategy[Plan]:
    """Return plans, one rank per node, whose ranks all have blocks of one size."""

    def compile_one(name: tuple[str, str], n_ranks: int, blocks: int) -> Plan:
        machine: dict[str, Any] = {"nodes": n_ranks}
        count = blocks * n_ranks
        return compile_plan(make_spec(*name, n_ranks, machine, count=count, datatype="int8"))

    names, sizes = st.sampled_from(algorithms), st.sampled_from([0, 1, 7, 100, 5000])
    return st.builds(compile_one, names, st.integers(1, 8), sizes)


IN_TURN = [
    ("bcast", "chain"),
    ("reduce", "chain"),
    ("scan", "chain"),
    ("exscan", "chain"),
    ("allgather", "ring"),
    ("allreduce", "ring"),
    ("reduce_scatter_block", "ring"),
]
"""Algorithms whose ranks never have two things to do at once that could change places."""


@settings(max_examples=examples(100), deadline=None)
@given(serial_plans(IN_TURN), networks, st.sampled_from(LETTERS), st.sampled_from([0, 0.5]))
def test_chains_and_rings_gain_from_faster_links(
    plan: Plan, costs: Network, letter: str, factor: float
) -> None:
    plan, costs, timeline = simulated(plan, costs.replace(**PLAIN))
    link = costs.network.replace(**{letter: getattr(costs.network, letter) * factor})
    assert simulate(plan, costs.replace(network=link)).makespan_ns <= timeline.makespan_ns


@settings(max_examples=examples(40), deadline=None)
@given(
    networks, st.sampled_from(IN_TURN), st.integers(1, 8), st.integers(0, 600), st.integers(0, 600)
)
def test_chains_and_rings_gain_from_fewer_bytes(
    costs: Network, name: tuple[str, str], n_ranks: int, block: int, other: int
) -> None:
    """All messages on one side of the eager limit: a shorter one may otherwise stop to wait."""
    costs = costs.replace(**PLAIN, cache_bytes=None, eager_limit_bytes=MANY_BYTES)
    fewer, more = (
        compile_plan(
            make_spec(*name, n_ranks, {"nodes": n_ranks}, count=n * n_ranks, datatype="int8")
        )
        for n in sorted((block, other))
    )
    assert simulate(fewer, costs).makespan_ns <= simulate(more, costs).makespan_ns


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(schedules(), clustered()), st.integers(0, 3000), st.integers(0, 3000))
def test_what_holds_nothing_takes_its_longest_chain(plan: Plan, one: int, other: int) -> None:
    """With latency alone no task waits for another's resource: less of it never hurts."""
    plan = plan.replace(duration_ns=np.zeros_like(plan.duration_ns))
    makespans = []
    for latency in sorted((one, other)):
        link = FREE.replace(L_ns=latency)
        costs = Network(
            core=link, numa=link, node=link, network=link, copy_ns_per_byte=0,
            reduce_ns_per_byte=0, eager_limit_bytes=MANY_BYTES,
        )  # fmt: skip
        timeline = simulate(plan, costs)
        assert timeline.makespan_ns == latency * messages_in_a_row(plan, timeline.partner)
        makespans.append(timeline.makespan_ns)
    assert makespans[0] <= makespans[1]


def messages_in_a_row(plan: Plan, partner: Any) -> int:
    """Return the most messages that any chain of dependencies has."""
    recvs = np.flatnonzero(plan.op == Op.RECV)
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before, on_start = plan.deps.task, plan.deps.kind & ON_START
    start = np.zeros(plan.n_tasks, dtype=np.int64)
    while True:
        end = start.copy()
        end[recvs] = np.maximum(start[recvs], start[partner[recvs]] + 1)
        later = np.zeros_like(start)
        np.maximum.at(later, after, np.where(on_start, start[before], end[before]))
        if np.array_equal(later, start):
            return int(end.max(initial=0))
        start = later


@pytest.mark.parametrize("kind", ["alltoall", "allgather"])
def test_more_lanes_help_where_lanes_are_all_there_is(kind: str) -> None:
    """Cores cost nothing: twice the lanes, nearly half the time, and never more of it."""
    makespans = []
    for lanes in (1, 2, 4):
        machine = {"nodes": 2, "ranks_per_node": 4, "lanes": lanes, "rank_order": "cyclic"}
        plan = compile_plan(make_spec(kind, "linear", 8, machine, count=1000, datatype="int8"))
        link = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=1, offload=True)
        costs = Network(network=link, numa=FREE, node=FREE, core=FREE, copy_ns_per_byte=0)
        makespans.append(simulate(plan, costs.replace(eager_limit_bytes=MANY_BYTES)).makespan_ns)
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[2] <= 0.3 * makespans[0]
