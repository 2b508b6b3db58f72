"""The simulator agrees with LogGOPSim to the nanosecond, and with its rules on random schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collplan.executors.cost import simulate
from collplan.planner.errors import DeadlockError
from collplan.planner.formats.goal import parse_goal, read_goal
from cost_schedules import PARAMETERS, Rules, network, random_schedule

SCHEDULES = Path(__file__).parent / "goal"
EXPECTED = json.loads((SCHEDULES / "expected.json").read_text())


@pytest.mark.quick
@pytest.mark.parametrize("name", EXPECTED)
def test_agrees_with_loggopsim_exactly(name: str) -> None:
    plan = read_goal(SCHEDULES / f"{name}.goal")
    for run in EXPECTED[name]:
        letters = ",".join(f"{letter}={run[letter]}" for letter in "LogGOS")
        assert simulate(plan, network(letters)).makespan_ns == run["makespan_ns"], letters


@pytest.mark.many
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_agrees_with_the_rules_on_random_schedules(parameters: str) -> None:
    n_deadlocks = 0
    for seed in range(30):
        plan = parse_goal(random_schedule(seed, n_ranks=2 + seed % 7, n_statements=6 * seed))
        try:
            timeline = simulate(plan, network(parameters))
        except DeadlockError:
            n_deadlocks += 1
            partner = simulate(plan, network(PARAMETERS[2])).partner
            assert Rules(plan, network(parameters)).makespan_ns(partner.tolist()) is None, seed
        else:
            expected = Rules(plan, network(parameters)).makespan_ns(timeline.partner.tolist())
            assert timeline.makespan_ns == expected, seed
    assert n_deadlocks < 25


def test_a_schedule_that_serves_by_position() -> None:
    """Two sends ready at 0: the first of the file holds core (1,500) and lane (1,000 + 6·99).

    The second starts when the lane is free at 1,594, ends at 3,094; its message arrives at
    1,594 + 1,500 + 2,500 = 5,594 and holds the receiver's core for 1,500 + 6·99 = 2,094.
    """
    sends = "a: send 100b to 1 tag 0\nb: send 100b to 2 tag 0"
    recvs = "rank 1 {\nr: recv 100b from 0 tag 0\n}\nrank 2 {\nr: recv 100b from 0 tag 0\n}"
    timeline = simulate(parse_goal(f"num_ranks 3\nrank 0 {{\n{sends}\n}}\n{recvs}"), network())
    assert timeline.start_ns.tolist() == [0, 1594, 0, 0]
    assert timeline.end_ns.tolist() == [1500, 3094, 4000 + 2094, 5594 + 2094]
