"""Reports, and LogGPS parameters from a line of text."""

from __future__ import annotations

import json

import pytest

from collplan.executors.cost import Loggps, cost_report, simulate
from collplan.planner import compile_plan
from collplan.planner.formats.goal import parse_goal
from collplan.reports.cost import MOST_LINES, Fold, fold, path_rows, print_cost
from collplan.specs import SpecError, load_spec, parse_spec
from cost_schedules import network
from folders import EXAMPLES

PAIR = """
num_ranks 2
rank 0 {
a: calc 2000
b: send 1b to 1
b requires a
}
rank 1 {
c: recv 1b from 0
d: calc 500
d requires c
}
"""


def test_report_has_what_scripts_rely_on() -> None:
    """a to 2,000; b's message arrives at 2,000 + 4,000, c takes 1,500, d 500: 8,000 ns."""
    plan = parse_goal(PAIR)
    timeline = simulate(plan, network())
    report = json.loads(json.dumps(cost_report(plan, timeline, network())))
    assert report["makespan_s"] == 8e-6
    assert report["makespan_ns"] == 8000
    assert report["n_tasks"] == 4
    assert report["simulate_s"] > 0
    path = report["critical_path"]
    assert [step["row"] for step in path] == [0, 1, 2, 3]
    assert [step["waited_for"] for step in path] == [
        "nothing",
        "dependency",
        "message",
        "dependency",
    ]
    assert path[1] == {
        "row": 1,
        "rank": 0,
        "op": "send",
        "peer": 1,
        "bytes": 1,
        "node": 0,
        "core": 0,
        "lane": 0,
        "phase": "",
        "start_s": 2e-6,
        "end_s": 3.5e-6,
        "begin_s": 2e-6,
        "takes_s": 4e-6,
        "waited_for": "dependency",
        "queued_s": 0.0,
        "resource": None,
    }
    assert report["breakdown"] == {
        "latency": 2500,
        "bandwidth": 0,
        "overhead": 3000,
        "copy": 0,
        "reduce": 0,
        "compute": 2500,
        "waiting": 0,
    }
    assert report["bound_s"] is None
    assert report["lanes"][0] == {
        "node": 0,
        "lane": 0,
        "out_busy_s": 1e-6,
        "in_busy_s": 0.0,
        "utilisation": 0.125,
        "pcie_reads": None,
    }
    assert [core["busy_s"] for core in report["cores"]] == [3.5e-6, 2e-6]


def test_text_shows_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    plan = parse_goal(PAIR)
    print_cost(cost_report(plan, simulate(plan, network()), network()))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("makespan 8 µs: 4 tasks simulated in ")
    assert "latency 2.5 µs 31.2%" in lines
    assert "lanes, out 2 0% 6% 12% lane 0 of node 0" in lines
    assert "2 µs 4 µs rank 0: send 1 B to 1 node 0, core 0, lane 0 rank 0's compute" in lines
    assert "6 µs 1.5 µs rank 1: recv 1 B from 0 node 1, core 0, lane 0 its message" in lines
    assert lines[-2] == "7.5 µs 500 ns rank 1: compute node 1, core 0 rank 1's recv"


@pytest.mark.parametrize("machine", [None, "dragonfly"])
def test_without_the_path_the_report_is_short(
    capsys: pytest.CaptureFixture[str], machine: str | None
) -> None:
    spec = load_spec(EXAMPLES / "allgather_two_lanes.yaml")
    if machine is not None:
        spec = load_spec(EXAMPLES / "networks" / "dragonfly_job.yaml")
    plan = compile_plan(spec)
    print_cost(cost_report(plan, simulate(plan)), has_path=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[-1].endswith("--path shows them")
    assert ("busiest link" in "".join(lines)) == (machine is not None)


def test_an_empty_plan_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plan = parse_goal("num_ranks 1\nrank 0 { }")
    report = cost_report(plan, simulate(plan, network()))
    assert report["makespan_s"] == 0
    assert report["critical_path"] == []
    print_cost(report)
    assert capsys.readouterr().out.startswith("makespan 0 ns: 0 tasks")


def test_the_report_has_the_bound_and_its_terms() -> None:
    """1,000 bytes enter every node at 2 ns each; on one node, a rank copies them at 0.1 ns."""
    collective = {"kind": "bcast", "count": 1000, "datatype": "uint8"}
    links = {"network": {"L_ns": 1, "o_ns": 1, "g_ns": 2, "G_ns_per_byte": 2}}
    links["numa"] = {"L_ns": 1, "o_ns": 1, "g_ns": 1, "G_ns_per_byte": 0.5}
    for nodes, name, bound in ((4, "lanes", 2.001e-6), (1, "results", 0.101e-6)):
        machine = {"nodes": nodes, "ranks_per_node": 2, "network": links}
        spec = parse_spec({"machine": machine, "collective": collective, "algorithms": "binomial"})
        plan = compile_plan(spec)
        report = cost_report(plan, simulate(plan))
        assert report["bounds_s"][name] == pytest.approx(bound)
        assert report["bound_s"] == max(report["bounds_s"].values())
        assert report["makespan_s"] >= report["bound_s"]


def chain(n: int, n_ranks: int) -> str:
    """Return a message that goes around the ranks, n times in all."""
    lines: list[list[str]] = [[] for _ in range(n_ranks)]
    for i in range(n):
        source, dest = i % n_ranks, (i + 1) % n_ranks
        lines[source].append(f"s{i}: send 8b to {dest} tag {i}")
        lines[dest].append(f"r{i}: recv 8b from {source} tag {i}")
        if i:
            lines[source].append(f"s{i} requires r{i - 1}")
    ranks = (f"rank {r} {{\n" + "\n".join(mine) + "\n}" for r, mine in enumerate(lines))
    return f"num_ranks {n_ranks}\n" + "\n".join(ranks)


def test_a_thousand_steps_fold_into_a_few_lines() -> None:
    """Send and receive, from rank to rank: one fold of two steps, but for how it begins."""
    plan = parse_goal(chain(500, n_ranks=5))
    report = cost_report(plan, simulate(plan, network()), network())
    assert len(report["critical_path"]) == 1000
    folds = fold(report["critical_path"], 5)
    assert sum(part.period * part.times for part in folds) == 1000
    assert Fold(first=1, period=2, times=499, shift=1) in folds
    rows = path_rows(report)
    assert len(rows) == 4
    assert [row[2] for row in rows] == ["", "499 × ┐", "   ┘", ""]
    assert rows[1][3] == "rank i: recv 8 B from i-1, i = 1, 2, …"
    assert rows[2][1].endswith(" each")


def test_a_long_path_without_a_pattern_shows_both_ends() -> None:
    durations = [(7919 * i) % 1000 + 1 for i in range(200)]
    lines = [f"l{i}: calc {ns}" for i, ns in enumerate(durations)]
    lines += [f"l{i} requires l{i - 1}" for i in range(1, 200)]
    plan = parse_goal("num_ranks 1\nrank 0 {\n" + "\n".join(lines) + "\n}")
    report = cost_report(plan, simulate(plan, network()), network())
    # Computations differ in time only: that is one kind of step.
    assert len(path_rows(report)) < 5
    for i, step in enumerate(report["critical_path"]):
        step["bytes"] = i * i
    rows = path_rows(report, most=10)
    assert len(rows) == 11
    assert rows[5][3] == "… 190 more tasks, all of them with --json"
    shown = sum(step["takes_s"] for step in report["critical_path"][5:195])
    assert shown == pytest.approx(sum(durations[5:195]) / 1e9)


def test_loggps_sets_all_links() -> None:
    parsed = Loggps.parse("L=1, o=2,g=3,G=0.5,O=0,S=6")
    assert parsed.core == parsed.numa == parsed.node == parsed.network
    assert parsed.network.model_dump() == {
        "L_ns": 1,
        "o_ns": 2,
        "g_ns": 3,
        "G_ns_per_byte": 0.5,
        "O_ns_per_byte": 0,
        "offload": False,
    }
    assert parsed.eager_limit_bytes == 6
    assert parsed.copy_ns_per_byte == parsed.reduce_ns_per_byte == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("L=1", "o, g, G, O, S missing"),
        ("L=1,o=1,g=1,G=1,O=1,S=1,x=3", "'x=3' is not a parameter"),
        ("L=1,o=1,g=1,G=1,O=1,S=1,L=2", "L is given twice"),
        ("L=-1,o=1,g=1,G=1,O=1,S=1", "L=-1 must be a number from 0"),
        ("L=nan,o=1,g=1,G=1,O=1,S=1", "L=nan must be a number from 0"),
        ("L=1,o=one,g=1,G=1,O=1,S=1", "o=one must be a number from 0"),
        ("L=1,o=1,g=1,G=1,O=1,S=1.5", "S=1.5 must be whole bytes"),
        ("L", "'L' is not a parameter"),
    ],
)
def test_loggps_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as error:
        Loggps.parse(text)
    message = str(error.value)
    assert message.startswith(f"loggps: {problem}")
    assert message.endswith("like L=2500,o=1500,g=1000,G=6,O=0,S=65535")
    assert "\n" not in message
