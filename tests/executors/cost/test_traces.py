"""Traces: valid, complete, and showing what the simulation found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.cost import simulate
from collplan.executors.cost.traces import Layer, TraceError, simulated_layer, write_trace
from collplan.executors.cost.traces.layers import tracks_of
from collplan.executors.cost.traces.paje import paje_chunks
from collplan.executors.cost.traces.perfetto import perfetto_chunks
from collplan.planner import compile_plan
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Network, load_spec
from command_line import CommandLine
from cost_schedules import PARAMETERS, network, on_machine, random_schedule
from folders import ROOT
from paje_checking import Paje
from perfetto_checking import Events, checked_events
from tiers import examples

ONE = "num_ranks 2\nrank 0 {\ns: send 101b to 1\n}\nrank 1 {\nr: recv 101b from 0\n}"
BETWEEN = "L=100,o=10,g=20,G=1,O=0,S=1000"


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def perfetto(layers: list[Layer]) -> Events:
    return checked_events("".join(perfetto_chunks(layers)))


def slices(events: Events) -> list[tuple[int, str, float, float, str]]:
    """Return (pid, thread, ts, dur, name) of every slice."""
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    return [
        (
            event["pid"],
            threads[event["pid"], event["tid"]],
            event["ts"],
            event["dur"],
            event["name"],
        )
        for event in events
        if event["ph"] == "X"
    ]


def simulated(plan: Plan, parameters: Network) -> Layer:
    return simulated_layer(simulate(plan, parameters), parameters)


def test_one_message_by_hand() -> None:
    events = perfetto([simulated(parse_goal(ONE), network(BETWEEN))])
    assert sorted(slices(events)) == [
        (1, "core 0", 0.0, 0.01, "send to 1"),
        (1, "lane 0 out", 0.0, 0.12, "send to 1"),
        (2, "core 0", 0.11, 0.11, "recv from 0"),
        (2, "lane 0 in", 0.11, 0.12, "recv from 0"),
    ]
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["simulated node 0", "simulated node 1"]
    counter = [(e["ts"], e["args"]["bytes"]) for e in events if e["ph"] == "C"]
    assert counter == [(0.0, 101), (0.11, 0)]


def test_one_message_in_paje() -> None:
    trace = Paje().read("".join(paje_chunks([simulated(parse_goal(ONE), network(BETWEEN))])))
    assert len(trace.links) == 1
    begin, end, source, dest = trace.links[0]
    assert (begin, end) == (0, 1.1e-7)
    assert source != dest
    states = [(t, value) for t, track, value in trace.states if track == dest]
    assert states == [(0, "Cidle"), (1.1e-7, "C1"), (2.2e-7, "Cidle")]


SHARED_CORE = """num_ranks 3
rank 0 {
l1: send 70000b to 2 tag 0
}
rank 1 {
l1: send 1661b to 2 tag 0
}
rank 2 {
l1: recv 1661b from 1 tag 0
l2: recv 70000b from 0 tag 0
l2 requires l1
}
"""
"""Ranks 0 and 2 share a core; a receive is posted when its message has come long ago."""


def test_a_message_to_a_rank_on_the_same_core_comes_when_the_core_has_sent_it() -> None:
    parameters = network("L=3,o=1,g=2,G=1,O=1,S=0").replace(eager_limit_bytes=10**9)
    timeline = simulate(on_machine(SHARED_CORE, [0, 0, 0], [0, 1, 0], 1), parameters)
    tracks = tracks_of(simulated_layer(timeline, parameters))
    on_core = tracks.track == 0
    busy_ns = (tracks.end - tracks.begin)[on_core].sum()
    assert busy_ns == timeline.core_busy_ns[0, 0] == 2 * 70_000 + 1661


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 60), st.data())
def test_slices_are_what_cores_and_lanes_were_busy(
    seed: int, n_ranks: int, n_statements: int, data: st.DataObject
) -> None:
    """Times are whole, so nothing is rounded; a message's time is known even if posted late."""
    n_nodes = data.draw(st.integers(1, n_ranks))
    nodes = [rank % n_nodes for rank in range(n_ranks)]
    cores = [rank // n_nodes % 3 for rank in range(n_ranks)]
    text = random_schedule(seed, n_ranks, n_statements)
    plan = on_machine(text, nodes, cores, data.draw(st.integers(1, 2)))
    parameters = network(data.draw(st.sampled_from(PARAMETERS))).replace(eager_limit_bytes=10**9)
    timeline = simulate(plan, parameters)
    layer = simulated_layer(timeline, parameters)
    tracks = tracks_of(layer)
    busy = np.zeros(len(tracks.names))
    np.add.at(busy, tracks.track, tracks.end - tracks.begin)
    n_lane_tracks = sum(tracks.is_lane)
    lanes = busy[len(busy) - n_lane_tracks :].reshape(timeline.lane_busy_ns.shape)
    assert np.array_equal(lanes, timeline.lane_busy_ns)
    cores_busy = busy[: len(busy) - n_lane_tracks].reshape(timeline.core_busy_ns.shape)
    assert np.array_equal(cores_busy, timeline.core_busy_ns)
    events = perfetto([layer])
    assert sum(event["ph"] == "s" for event in events) == np.count_nonzero(plan.op == Op.SEND)
    trace = Paje().read("".join(paje_chunks([layer])))
    assert len(trace.links) == np.count_nonzero(plan.op == Op.SEND)


def test_two_timelines_share_a_file() -> None:
    plan = compile_plan(load_spec(ROOT / "examples" / "allgather_two_lanes.yaml"))
    assert plan.spec is not None
    timeline = simulate(plan)
    measured = Layer("measured", plan, timeline.start_ns * 1.5, timeline.end_ns * 1.5)
    layers = [simulated_layer(timeline, plan.spec.machine.network), measured]
    events = perfetto(layers)
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {f"{kind} node {i}" for kind in ("simulated", "measured") for i in (0, 1)}
    n_messages = int(np.count_nonzero(plan.op == Op.SEND))
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 2 * n_messages
    of_measured = [entry for entry in slices(events) if entry[0] > 2]
    assert len(of_measured) == plan.n_tasks
    # Receives posted at once lie side by side.
    assert any(name.endswith("(2)") for _, name, *_ in of_measured)
    assert len(Paje().read("".join(paje_chunks(layers))).links) == 2 * n_messages


@pytest.mark.quick
@pytest.mark.parametrize(
    "changes",
    [
        {"handshake": True, "eager_limit_bytes": 100},
        {"eager_limit_bytes": 100},
        {"processors": 2, "memory_ns_per_byte": 0.5, "strided_ns_per_byte": 0.3},
    ],
)
def test_whatever_the_network_does_traces_are_valid(changes: dict[str, Any]) -> None:
    plan = compile_plan(load_spec(ROOT / "examples" / "alltoall.yaml"))
    assert plan.spec is not None
    parameters = plan.spec.machine.network.replace(**changes)
    parameters = parameters.replace(network=parameters.network.replace(offload=True))
    layer = simulated(plan, parameters)
    perfetto([layer])
    Paje().read("".join(paje_chunks([layer])))


def test_an_empty_plan_is_a_trace() -> None:
    layer = simulated(parse_goal("num_ranks 1\nrank 0 { }"), network())
    assert slices(perfetto([layer])) == []
    assert Paje().read("".join(paje_chunks([layer]))).links == []


def test_another_ending_is_refused_before_anything_is_simulated(collplan: CommandLine) -> None:
    line = collplan("cost", collplan.write_spec(), "--trace", "out.txt").error()
    assert "out.txt ends in .txt" in line
    assert ".json for Perfetto or .paje" in line


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "no" / "trace.json"
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(path, [])


@pytest.mark.parametrize("ending", ["json", "paje"])
def test_cost_writes_traces(collplan: CommandLine, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"trace.{ending}"
    document = collplan("cost", collplan.write_spec(), "--trace", str(path), "--json").json()
    assert document["trace"] == str(path)
    text = path.read_text()
    if ending == "json":
        assert json.loads(text)["traceEvents"]
    else:
        assert Paje().read(text).states


def test_a_huge_trace_is_warned_of(
    collplan: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collplan.executors.cost.traces.MANY_TASKS", 1)
    path = tmp_path / "trace.json"
    outcome = collplan("cost", collplan.write_spec(), "--trace", str(path), "--json")
    assert "warning" in outcome.err
    assert path.exists()
