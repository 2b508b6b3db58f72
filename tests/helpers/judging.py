"""Verdicts on corrupted plans: the proof's beside those of brute force."""

from __future__ import annotations

import re
from itertools import pairwise

from brute_force import Faults, find_faults
from collplan.planner import Plan
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Op
from collplan.planner.verify import verify


def judge(plan: Plan) -> str:
    """Return "harmless" or the error's kind; fail where verify and brute force disagree."""
    faults = find_faults(plan)
    try:
        verify(plan)
    except PlanError as error:
        check_refusal(plan, error, faults)
        return error.kind
    assert not faults, f"verify accepts, brute force finds {faults}"
    return "harmless"


def check_refusal(plan: Plan, error: PlanError, faults: Faults) -> None:
    """The error is of a kind that brute force found, and names what is wrong."""
    text = str(error)
    assert "\n" not in text
    kind = error.kind
    if kind == "deadlock" and "rendezvous" in text:
        kind = "rendezvous_deadlock"
    assert kind in faults, f"verify says {kind}: {text}; brute force finds {faults}"
    evidence = faults[kind]
    rows = [int(row) for row in re.findall(r"#(\d+) rank", text)]
    place = re.match(r"rank (\d+) recv\[(\d+)\] holds", text)
    leaver = re.match(r"rank (\d+) may leave .* rank (\d+) has", text)
    if place:
        assert ("RECV", int(place[1]), int(place[2])) in evidence, f"{text}; wrong are {evidence}"
    elif leaver:
        assert (int(leaver[1]), int(leaver[2])) in evidence, f"{text}; wrong are {evidence}"
    elif "deadlock" in kind:
        assert len(rows) > 1, text
        assert all(set(rows) <= stuck for stuck in evidence), f"{text}; stuck are {evidence}"
        assert all(waits_for(plan, *pair) for pair in pairwise(rows)), text
    elif kind != "format":
        assert frozenset(rows) in evidence, f"{text}; wrong are {evidence}"


def waits_for(plan: Plan, one: int, other: int) -> bool:
    """Return whether a dependency or a message makes one task wait for another."""
    here, there = plan.task(one), plan.task(other)
    ends = {here.op, there.op} == {Op.SEND, Op.RECV}
    return other in here.after or (
        ends and (here.rank, here.peer, here.tag) == (there.peer, there.rank, there.tag)
    )
