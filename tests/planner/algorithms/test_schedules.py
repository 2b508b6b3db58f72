"""Messages of algorithms beside reference schedules, which other programs made of papers' rules.

`schedules.json` has the messages of every round as (source, destination, number of blocks).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.rounds import Group, Message
from collplan.planner.plan.plan import Op
from looping import looped
from oracle import make_spec

REFERENCE: list[dict[str, Any]] = json.loads(Path(__file__).with_name("schedules.json").read_text())
UNIT = 4
"""Elements of a block."""
SHIFTED = {("scan", "in_order_tree", 17)}
"""Schedules whose messages are the same, but go in other rounds than those of the reference."""
SIGNALS = {("barrier", "dissemination"), ("bcast", "knomial")}
"""Schedules that state no blocks."""


def name_of(one: dict[str, Any]) -> str:
    return f"{one['kind']}-{one['name']}-{one['options']}-{one['p']}"


def is_shifted(one: dict[str, Any]) -> bool:
    return (one["kind"], one["name"], one["p"]) in SHIFTED


def ends_by_round(one: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """Return source and destination of every message, round by round."""
    algorithm = registry.find(one["kind"], one["name"])
    options = {**(algorithm.options or {}), **one["options"]}
    n_parts = algorithm.n_parts(one["p"], options)
    if algorithm.parts == "blocks" and one["kind"] == "allgather":
        n_parts *= one["p"]
    group = Group(one["p"], 0, True, np.ones((1, n_parts), dtype=np.int64), options)
    rounds = []
    for each in algorithm.steps(group):
        sent: list[tuple[int, int]] = []
        for step in each.steps:
            if isinstance(step, Message):
                ends = np.broadcast_arrays(step.source, step.dest)
                sent += zip(*(end.ravel().tolist() for end in ends), strict=True)
        rounds.append(sorted(set(sent)))
    return [sent for sent in rounds if sent]


@looped("one", REFERENCE)
def test_messages_are_those_of_the_reference(one: dict[str, Any]) -> None:
    kind, name, p = one["kind"], one["name"], one["p"]
    fields = (
        {}
        if kind == "barrier"
        else {"count": UNIT * one["options"].get("blocks", 1), "datatype": "int32"}
    )
    plan = compile_plan(make_spec(kind, {"name": name, **one["options"]}, p, **fields))
    rows = np.flatnonzero(plan.op == Op.SEND)
    states_blocks = (kind, name) not in SIGNALS
    columns = [plan.rank[rows], plan.peer[rows]]
    columns += [plan.elements[rows] // UNIT] if states_blocks else []
    ours = Counter(zip(*(column.tolist() for column in columns), strict=True))
    n = 3 if states_blocks else 2
    assert ours == Counter(tuple(sent[:n]) for sent_now in one["rounds"] for sent in sent_now)


@looped("one", [one for one in REFERENCE if not is_shifted(one)])
def test_messages_go_in_the_rounds_of_the_reference(one: dict[str, Any]) -> None:
    left = [{(sent[0], sent[1]) for sent in sent_now} for sent_now in one["rounds"]]
    for ours in ends_by_round(one):
        # Of several messages per rank at once, the reference has a round each.
        missing = set(ours)
        while missing:
            assert left, f"more messages than the reference has: {missing}"
            theirs = left.pop(0)
            assert theirs <= missing
            missing -= theirs
    assert not left
