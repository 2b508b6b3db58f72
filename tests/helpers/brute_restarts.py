"""Two starts of a plan, one after the other, with all their tasks: what overtakes what?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from brute_steps import END, START, Event, Faults, Past, Place, Step, needs
from collplan.planner.plan.plan import Plan


def restart_races(plan: Plan, steps: list[Step], sender: Mapping[int, int]) -> Faults:
    """Return pairs (task of one start, task of the next) that touch shared memory in no order."""
    if not any(place[0] == "SHARED" for step in steps for place in (*step.reads, *step.writes)):
        return {}
    n = len(steps)
    once = needs(steps, sender, eager=True)
    twice: dict[Event, set[Event]] = dict(once)
    for (what, row), before in once.items():
        twice[what, row + n] = {(other, number + n) for other, number in before}
    rows = defaultdict(list)
    for step in steps:
        rows[step.rank].append(step.row)
    for step in steps:
        done = {step.rank}
        if any(place[0] == "SHARED" for place in step.writes):
            done = {r for r in rows if plan.rank_node[r] == plan.rank_node[step.rank]}
        twice[START, step.row + n] |= {(END, row) for rank in done for row in rows[rank]}
    past = Past(twice)
    bad: set[object] = {
        frozenset({one, other})
        for one, other in _conflicts(steps)
        if not past.precedes((END, one), (START, other + n))
    }
    return {"race": bad} if bad else {}


def _conflicts(steps: list[Step]) -> set[tuple[int, int]]:
    """Return ordered pairs of tasks of different ranks that conflict in shared memory."""
    readers: dict[Place, set[int]] = defaultdict(set)
    writers: dict[Place, set[int]] = defaultdict(set)
    for step in steps:
        for side, places in ((readers, step.reads), (writers, step.writes)):
            for place in places:
                if place[0] == "SHARED":
                    side[place].add(step.row)
    pairs = set()
    for place, rows in writers.items():
        for one in rows:
            for other in rows | readers[place]:
                pairs |= {(one, other), (other, one)}
    return {(a, b) for a, b in pairs if steps[a].rank != steps[b].rank}
