"""Simulation of cores that progress threads share, and of buffers at their mirrors.

In the hand-made cases a link has L = 100, o = 10, g = 20 and G = 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_steps import unroll
from collplan.executors.cost import cost_report, simulate, simulate_each
from collplan.executors.cost.critical_path import breakdown, legs
from collplan.executors.cost.layout import staged_elements
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.specs import Link, Network, PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from command_line import CommandLine
from cost_schedules import network, on_machine
from tiers import examples

BETWEEN = "L=100,o=10,g=20,G=1,O=0,S=1000000"
SWITCH = {"switch_s": 7e-9}
FREE = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=0)
LINKS = {
    name: Link(L_ns=ns, o_ns=0, g_ns=0, G_ns_per_byte=0)
    for name, ns in (("core", 1), ("numa", 20), ("node", 300), ("network", 4000))
}


def calculations(*durations: tuple[int, ...]) -> str:
    """Return a schedule in which each rank calculates one thing after the other."""
    text = f"num_ranks {len(durations)}\n"
    for rank, own in enumerate(durations):
        lines = [f"l{i}: calc {ns}" for i, ns in enumerate(own)]
        lines += [f"l{i} requires l{i - 1}" for i in range(1, len(own))]
        text += "\n".join([f"rank {rank} {{", *lines, "}\n"])
    return text


class TestSwitches:
    def test_a_core_that_changes_rank_takes_longer(self) -> None:
        """Rank 0's 10 is free of charge; rank 1's 5 takes 7 more, and so does rank 0's next."""
        plan = on_machine(calculations((10, 20), (5,)), [0, 0], [0, 0])
        timeline = simulate(plan, network(BETWEEN, **SWITCH))
        assert timeline.start_ns.tolist() == [0, 22, 10]
        assert timeline.end_ns.tolist() == [10, 49, 22]
        assert timeline.core_busy_ns.tolist() == [[49]]

    def test_a_rank_alone_on_its_core_pays_nothing(self) -> None:
        plan = on_machine(calculations((10, 20), (5, 8)), [0, 0], [0, 1])
        timeline = simulate(plan, network(BETWEEN, **SWITCH))
        assert timeline.end_ns.tolist() == [10, 30, 5, 13]

    def test_what_takes_no_time_needs_no_switch(self) -> None:
        """Rank 1's nothing is done at once, and rank 0 is still on the core behind it."""
        plan = on_machine(calculations((10, 20), (0,)), [0, 0], [0, 0])
        timeline = simulate(plan, network(BETWEEN, **SWITCH))
        assert timeline.end_ns.tolist() == [10, 30, 10]

    def test_a_message_sets_out_after_the_switch(self) -> None:
        """Core 0 ends rank 0's 50, turns to rank 1, and its message is there 10 + 100 later.

        It has 11 bytes: 10 more nanoseconds in, and 10 of overhead.
        """
        text = """
        num_ranks 3
        rank 0 {
        c: calc 50
        }
        rank 1 {
        s: send 11b to 2
        }
        rank 2 {
        r: recv 11b from 1
        }
        """
        plan = on_machine(text, [0, 0, 0], [0, 0, 1])
        inside = Link(L_ns=100, o_ns=10, g_ns=20, G_ns_per_byte=1)
        timeline = simulate(plan, network(BETWEEN, numa=inside, **SWITCH))
        assert timeline.start_ns.tolist() == [0, 50, 0]
        assert timeline.end_ns.tolist() == [50, 67, 187]

    def test_an_arrival_turns_its_core_to_its_rank(self) -> None:
        """The message is there at 110, while core 1 is idle: 7 to turn, 10 + 10 to take it in."""
        text = """
        num_ranks 3
        rank 0 {
        s: send 11b to 1
        }
        rank 1 {
        r: recv 11b from 0
        }
        rank 2 {
        c: calc 30
        }
        """
        plan = on_machine(text, [0, 1, 1], [0, 1, 1])
        assert simulate(plan, network(BETWEEN, **SWITCH)).end_ns.tolist() == [10, 137, 30]
        offloading = network(BETWEEN, **SWITCH)
        offloading = offloading.replace(network=offloading.network.replace(offload=True))
        # The adapter takes 10 for the bytes meanwhile; the core is done with turning and o at 127.
        assert simulate(plan, offloading).end_ns.tolist() == [10, 130, 30]

    def test_memory_is_used_after_the_switch(self) -> None:
        """Both copies of 10 bytes keep the memory for 30; between them the core turns, for 7."""
        plan = placed([0, 0], transport="shared", ranks=2, count=10)
        slow = Network(memory_ns_per_byte=3.0, copy_ns_per_byte=1.0, core=FREE, **SWITCH)
        assert simulate(plan, slow).end_ns.tolist() == [30, 67]

    def test_switches_are_waiting_in_a_breakdown(self) -> None:
        plan = on_machine(calculations((10, 20), (5,)), [0, 0], [0, 0])
        costs = network(BETWEEN, **SWITCH)
        found = breakdown(legs(simulate(plan, costs), costs))
        assert found["compute"] == 35
        assert found["waiting"] == 14
        assert sum(found.values()) == 49

    @pytest.mark.parametrize("value", [-1e-9, float("inf")])
    def test_no_switch_takes_less_than_nothing(self, value: float) -> None:
        with pytest.raises(ValueError, match="switch_s"):
            Network(switch_s=value)


class TestLinks:
    @pytest.mark.quick
    @pytest.mark.parametrize(("core", "latency"), [(4, 300), (0, 1), (1, 20), (7, 300)])
    def test_a_message_takes_the_link_of_its_tasks_cores(self, core: int, latency: int) -> None:
        """The ranks themselves live on cores 0 and 1, in one domain."""
        plan = placed([0, core], ranks=2)
        timeline = simulate(plan, Network(**LINKS))
        assert timeline.end_ns.tolist() == [0, latency]
        assert breakdown(legs(timeline, Network(**LINKS)))["latency"] == latency

    @pytest.mark.quick
    @pytest.mark.parametrize(("core", "latency"), [(4, 300), (0, 1), (1, 20)])
    def test_a_flag_takes_the_link_of_its_tasks_cores(self, core: int, latency: int) -> None:
        plan = placed([0, core], ranks=2, transport="shared")
        costs = Network(**LINKS, copy_ns_per_byte=5.0)
        timeline = simulate(plan, costs)
        assert timeline.end_ns.tolist() == [5, 10 + latency]
        assert breakdown(legs(timeline, costs)) == {
            **dict.fromkeys(("bandwidth", "overhead", "reduce", "compute", "waiting"), 0.0),
            "copy": 10,
            "latency": latency,
        }

    def test_a_rank_sees_its_own_tasks_at_once(self) -> None:
        """Rank 1 copies on core 4, then computes on core 1: no flag, no latency."""
        text = "num_ranks 1\nrank 0 {\na: calc 5 cpu 4\nb: calc 3\nb requires a\n}"
        assert simulate(parse_goal(text), Network(**LINKS)).end_ns.tolist() == [5, 8]

    def test_no_placement_on_cores_beats_the_bound(self) -> None:
        """Two ranks may also share a core, over whose link 100 bytes are faster than elsewhere."""
        inside = {
            name: Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=per_byte)
            for name, per_byte in (("core", 1), ("numa", 2), ("node", 4))
        }
        for cores in ([0, 0], [0, 1], [0, 4]):
            plan = placed(cores, ranks=2, count=100)
            report = cost_report(plan, simulate(plan, Network(**inside)), Network(**inside))
            assert (report["bound_s"] or 0.0) <= report["makespan_s"]


def placed(
    cores: list[int], ranks: int = 4, count: int = 1, transport: str = "messages", **changes: Any
) -> Plan:
    """Return a broadcast of `count` bytes from rank 0, the tasks of rank i on core ``cores[i]``.

    A node has two domains of four cores, on the first of which the ranks live.
    """
    spec = {
        "machine": {"ranks_per_node": ranks, "cores": 8, "numa_domains": 2},
        "collective": {"kind": "bcast", "count": count, "datatype": "uint8", **changes},
        "algorithms": "linear",
        "transport": transport,
    }
    plan = compile_plan(PlanSpec.model_validate(spec))
    return plan.replace(core=np.array(cores)[plan.rank])


KINDS = ("allgather", "allreduce", "alltoall", "bcast", "gather", "reduce", "scan", "scatter")


@st.composite
def sharing(draw: st.DrawFn) -> Plan:
    """Return a plan of any collective whose ranks share memory."""
    kind = draw(st.sampled_from(KINDS))
    fields = COLLECTIVES[kind].model_fields
    collective = {
        "kind": kind,
        "count": draw(st.integers(0, 9)),
        "root": draw(st.integers(0, 1)),
        "in_place": draw(st.booleans()),
    }
    ranks = draw(st.integers(2, 6))
    legal = registry.legal(kind, ranks, commutative=True, level="ranks" if "op" in fields else None)
    names = [one.name for one in legal]
    spec = {
        "machine": {"nodes": draw(st.integers(1, 2)), "ranks_per_node": ranks},
        "collective": {name: x for name, x in collective.items() if name in (*fields, "kind")},
        "transport": "shared",
    }
    if spec["machine"]["nodes"] == 1:
        spec["algorithms"] = draw(st.sampled_from(names))
    else:
        spec["decomposition"] = "hierarchical"
    return compile_plan(PlanSpec.model_validate(spec))


class TestAllocated:
    @settings(max_examples=examples(60), deadline=None)
    @given(sharing())
    def test_what_goes_to_the_same_element_of_a_mirror_is_staged(self, plan: Plan) -> None:
        """Counted element by element: read from a buffer, written to its mirror."""
        expected = []
        for step in unroll(plan):
            there = plan.mirrors[step.rank]
            same = [
                read[2] + there[Buffer[read[0]]] == write[2]
                for read, write in zip(step.reads, step.writes, strict=False)
                if write[0] == "SHARED" and read[0] in ("SEND", "RECV")
                if there[Buffer[read[0]]] >= 0
            ]
            expected.append(sum(same) if step.op is Op.COPY else 0)
        assert staged_elements(plan).tolist() == expected

    @settings(max_examples=examples(40), deadline=None)
    @given(sharing(), st.sampled_from([0.0, 0.5, 3.0]))
    def test_the_path_knows_what_was_not_copied(self, plan: Plan, memory: float) -> None:
        # Whole numbers and halves, so that sums of times are exact.
        inside = Link(L_ns=20, o_ns=3, g_ns=2, G_ns_per_byte=0.5)
        costs = network(BETWEEN, numa=inside, copy_ns_per_byte=2.0, memory_ns_per_byte=memory)
        plain, timeline = simulate(plan, costs), simulate(plan, costs, allocated=True)
        staged = staged_elements(plan) > 0
        takes = timeline.end_ns - timeline.start_ns
        assert timeline.is_allocated
        local = plan.op >= Op.COPY
        assert memory or (takes <= plain.end_ns - plain.start_ns)[local].all()
        whole = staged & (staged_elements(plan) == plan.elements)
        assert not takes[whole].any()
        found = breakdown(legs(timeline, costs))
        assert sum(found.values()) == timeline.makespan_ns
        assert found["waiting"] == 0 or memory
        assert simulate(plan, costs).end_ns.tolist() == plain.end_ns.tolist()
        (each,) = simulate_each(plan, [costs], allocated=True)
        assert each.end_ns.tolist() == timeline.end_ns.tolist()

    def test_a_root_that_lies_at_its_mirror_is_read_at_once(self) -> None:
        """Rank 0 stages 10 bytes, or has them there; the flag is seen 20 later, then 10 more."""
        plan = placed([0, 1], ranks=2, count=10, transport="shared")
        costs = Network(**LINKS, copy_ns_per_byte=1.0)
        assert simulate(plan, costs).end_ns.tolist() == [10, 40]
        timeline = simulate(plan, costs, allocated=True)
        assert timeline.end_ns.tolist() == [0, 30]
        found = breakdown(legs(timeline, costs))
        assert (found["latency"], found["copy"]) == (20, 10)

    def test_a_core_does_not_turn_for_what_is_there(self) -> None:
        plan = placed([0, 0], ranks=2, count=10, transport="shared")
        costs = Network(core=FREE, copy_ns_per_byte=1.0, **SWITCH)
        assert simulate(plan, costs).end_ns.tolist() == [10, 27]
        assert simulate(plan, costs, allocated=True).end_ns.tolist() == [0, 10]

    def test_the_command_prices_them(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        collplan = CommandLine(tmp_path, capsys)
        network = {"copy_ns_per_byte": 1.0, "numa": {"L_ns": 20, "o_ns": 0, "g_ns": 0}}
        network["numa"]["G_ns_per_byte"] = 0
        spec = collplan.write_spec(
            machine={"ranks_per_node": 2, "network": network},
            collective={"kind": "bcast", "count": 10, "datatype": "uint8"},
            algorithms="linear",
            transport="shared",
        )
        plain = collplan("cost", spec, "--json").json()
        allocated = collplan("cost", spec, "--allocated", "--json").json()
        assert (plain["makespan_ns"], allocated["makespan_ns"]) == (40, 30)
        assert allocated["breakdown"]["copy"] == 10
