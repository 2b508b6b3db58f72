"""Messages of algorithms round by round, to compare with schedules that follow published rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.rounds import Group, Message
from collplan.planner.metrics import Metrics, measure
from oracle import make_spec

Sent = tuple[int, int, int]
"""Source, destination and first chunk of a message."""


def schedule(
    kind: str, name: str, size: int, root: int = 0, *, commutative: bool = True, **options: Any
) -> list[list[Sent]]:
    """Return the messages of every round, sorted, after a check that ranks have one port each."""
    algorithm = registry.find(kind, name)
    every = {**(algorithm.options or {}), **options}
    n_chunks = algorithm.n_parts(size, every)
    group = Group(size, root, commutative, np.ones((1, n_chunks), dtype=np.int64), every)
    rounds = []
    for one in algorithm.steps(group):
        sent: list[Sent] = []
        for step in one.steps:
            if isinstance(step, Message):
                read = step.read if isinstance(step.read, tuple) else (step.read,)
                ends = np.broadcast_arrays(step.source, step.dest, read[0].first)
                sent += zip(*(end.ravel().tolist() for end in ends), strict=True)
        for end in (0, 1):
            ranks = [message[end] for message in sent]
            assert len(set(ranks)) == len(ranks), f"{kind}/{name}: not one port per rank"
        rounds.append(sorted(sent))
    return rounds


def counted(
    kind: str, name: str, size: int, count: int | None, root: int = 0, **options: Any
) -> Metrics:
    """Return the counts of a plan of `count` elements of one byte."""
    spec = make_spec(kind, {"name": name, **options}, size, count=count, root=root, datatype="int8")
    return measure(compile_plan(spec))
