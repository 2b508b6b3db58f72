"""Reports, and LogGPS parameters from a line of text."""

from __future__ import annotations

import json

import pytest

from cost_schedules import network
from executors.cost import Loggps, cost_report, cost_text, simulate
from planner.formats.goal import parse_goal
from specs import SpecError

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
    report = json.loads(json.dumps(cost_report(plan, timeline)))
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
        "start_s": 2e-6,
        "end_s": 3.5e-6,
        "waited_for": "dependency",
    }
    assert report["lanes"][0] == {
        "node": 0,
        "lane": 0,
        "out_busy_s": 1e-6,
        "in_busy_s": 0.0,
        "utilisation": 0.125,
    }
    assert [core["busy_s"] for core in report["cores"]] == [3.5e-6, 2e-6]


def test_text_shows_the_end_of_the_path() -> None:
    plan = parse_goal(PAIR)
    lines = cost_text(cost_report(plan, simulate(plan, network())), n_steps=2).splitlines()
    assert lines[0].startswith("makespan 8 µs: 4 tasks simulated in ")
    assert "critical path: 4 tasks, waiting: 2 × dependency, 1 × message" in lines
    assert lines[-3] == "  … 2 earlier tasks"
    assert lines[-1] == "  #3 rank 1 compute: 7.5 µs to 8 µs, waited for dependency"


def test_an_empty_plan_costs_nothing() -> None:
    plan = parse_goal("num_ranks 1\nrank 0 { }")
    report = cost_report(plan, simulate(plan, network()))
    assert report["makespan_s"] == 0
    assert report["critical_path"] == []
    assert cost_text(report).startswith("makespan 0 ns: 0 tasks")


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
        ("L=1,o=1,g=1,G=1,O=1,S=1,x=3", "'x=3' is no parameter"),
        ("L=1,o=1,g=1,G=1,O=1,S=1,L=2", "L is given twice"),
        ("L=-1,o=1,g=1,G=1,O=1,S=1", "L=-1 must be a number from 0"),
        ("L=nan,o=1,g=1,G=1,O=1,S=1", "L=nan must be a number from 0"),
        ("L=1,o=one,g=1,G=1,O=1,S=1", "o=one must be a number from 0"),
        ("L=1,o=1,g=1,G=1,O=1,S=1.5", "S=1.5 must be whole bytes"),
        ("L", "'L' is no parameter"),
    ],
)
def test_loggps_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as error:
        Loggps.parse(text)
    message = str(error.value)
    assert message.startswith(f"loggps: {problem}")
    assert message.endswith("like L=2500,o=1500,g=1000,G=6,O=0,S=65535")
    assert "\n" not in message
