"""Bytes over links: counted by hand and over all routes, the busiest link, and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import cost_report, simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.traces import simulated_layer, write_trace
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.plan.plan import Op
from collplan.specs import parse_spec

TREE: dict[str, Any] = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}


def used(topology: dict[str, Any] = TREE, **fields: Any) -> LinkUse:
    network = {**fields.pop("network", {}), "topology": topology}
    machine = {"nodes": 4, **fields.pop("machine", {}), "network": network}
    collective = {"kind": "alltoall", "count": 1000, "datatype": "uint8"}
    spec = parse_spec(
        {"machine": machine, "collective": collective, "algorithms": "linear", **fields}
    )
    routes = simulate(compile_plan(spec)).routes
    assert routes is not None
    return LinkUse(routes)


def test_of_a_group_in_both_halves_messages_inside_it_are_not_between_halves() -> None:
    """Nodes 0 to 2 send 9 messages to nodes 3 to 5; the one from 2 to 3 stays below a leaf."""
    use = used({"kind": "fat_tree", "down": [2, 3], "up": [1, 1]}, machine={"nodes": 6})
    assert use.halves == (8000, 25e9, pytest.approx(320))
    assert use.halves[2] <= use.busy_ns.max()


@pytest.mark.parametrize(("kind", "n_bytes"), [("gather", 2000), ("scatter", 2000)])
def test_of_two_directions_between_halves_the_slower_one_counts(kind: str, n_bytes: int) -> None:
    """All messages go to the first node, or come from there."""
    use = used(collective={"kind": kind, "count": 1000, "datatype": "uint8"})
    assert use.halves == (n_bytes, 12.5e9, pytest.approx(160))


def test_bytes_of_an_alltoall_by_hand() -> None:
    use = used()
    names = {use.routes.fabric.link_name(link): n_bytes for link, n_bytes in enumerate(use.n_bytes)}
    assert names["host 0 to switch 1.0"] == names["switch 1.1 to host 3"] == 3000
    assert names["switch 1.0 to switch 2.0"] == names["switch 2.0 to switch 1.1"] == 4000
    assert use.bytes_by_class == {"host": 24000, "switch": 0, "group": 0, "global": 16000}
    assert use.bytes_by_reach == {"switch": 4000, "group": 0, "global": 8000}
    assert use.halves == (4000, 12.5e9, pytest.approx(320))
    report = use.report(1000.0)
    busiest = report["busiest"]
    assert busiest["bytes"] == 4000
    assert busiest["alike"] == 4
    assert busiest["busy_s"] == pytest.approx(320e-9)
    assert busiest["utilisation"] == pytest.approx(0.32)
    assert (busiest["messages"], busiest["senders"], busiest["receivers"]) == (4, [0, 1], [2, 3])
    assert report["n_used"] == report["n_links"] == 12


@pytest.mark.parametrize("turn_bytes", [None, 300])
def test_bytes_are_those_of_messages(turn_bytes: int | None) -> None:
    tree = {"kind": "fat_tree", "down": [2, 2, 2], "oversubscription": 2}
    machine = {"nodes": 8, "ranks_per_node": 2, "lanes": 2}
    use = used(tree, machine=machine, network={"turn_bytes": turn_bytes})
    total = sum(use.bytes_by_reach.values())
    assert total == 16 * 14 * 1000
    assert use.bytes_by_class["host"] == 2 * total
    assert use.bytes_by_class["global"] == 2 * use.bytes_by_reach["global"]
    assert use.bytes_by_class["group"] == 2 * (total - use.bytes_by_reach["switch"])


def test_a_plan_without_messages_between_nodes_uses_no_link() -> None:
    use = used(machine={"nodes": 1, "ranks_per_node": 4})
    assert not use.n_bytes.any()
    assert use.report(10.0)["busiest"] is None
    assert use.halves == (0, 0, 0)


def test_reports_say_where_time_goes() -> None:
    fields = {
        "machine": {
            "nodes": 4,
            "network": {
                "topology": {**TREE, "latency_ns": 100},
                "reduce_ns_per_byte": 0,
            },
        },
        "collective": {"kind": "allreduce", "count": 10**6, "datatype": "uint8", "op": "max"},
        "algorithms": "recursive_doubling",
    }
    plan = compile_plan(parse_spec(fields))
    timeline = simulate(plan)
    report = cost_report(plan, timeline)
    assert sum(report["breakdown"].values()) == pytest.approx(report["makespan_ns"], rel=1e-9)
    # One round behind a switch, one round of two messages over each link between them.
    assert report["breakdown"]["bandwidth"] == pytest.approx(160e3, rel=1e-3)
    assert report["breakdown"]["contention"] == pytest.approx(80e3, rel=1e-3)
    assert report["breakdown"]["latency"] == pytest.approx(2000 + 600, abs=1)
    assert report["breakdown"]["waiting"] == 0
    assert report["links"]["bytes_by_reach"]["global"] == 4e6
    busy = np.array([[lane["out_busy_s"], lane["in_busy_s"]] for lane in report["lanes"]])
    assert busy == pytest.approx(160e-6, rel=0.01)
    sends = plan.op == Op.SEND
    assert timeline.alone_ns is not None
    assert timeline.alone_ns[sends] == pytest.approx(80e3)


@pytest.mark.parametrize("down", [[2, 2], [4]])
def test_traces_count_messages_over_links(down: list[int], tmp_path: Path) -> None:
    fields = {
        "machine": {
            "nodes": 4,
            "network": {"topology": {"kind": "fat_tree", "down": down, "up": [1] * len(down)}},
        },
        "collective": {"kind": "alltoall", "count": 10**5, "datatype": "uint8"},
        "algorithms": "linear",
    }
    plan = compile_plan(parse_spec(fields))
    timeline = simulate(plan)
    write_trace(tmp_path / "trace.json", [simulated_layer(timeline, plan.spec.machine.network)])
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counters: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "C" and "messages" in event["args"]:
            counters.setdefault(event["name"], []).append(event["args"]["messages"])
            assert 0 <= event["ts"] <= timeline.makespan_ns / 1000
    assert len(counters) == (12 if len(down) == 2 else 8)
    assert all(counts[-1] == 0 and min(counts) == 0 for counts in counters.values())
    # Lanes send one message after another; two of them share the link between switches.
    upward = "simulated: messages, switch 1.0 to switch 2.0"
    if len(down) == 2:
        assert max(counters[upward]) >= 2
    assert max(counters["simulated: messages, host 0 to switch 1.0"]) >= 1
