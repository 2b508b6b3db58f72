"""Plans unrolled into lists of elements, and what happens before what in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collplan.planner.plan.plan import Buffer, Extent, Op, Plan
from collplan.planner.plan.ragged import ON_START

Place = tuple[str, int, int]
"""An element of memory: buffer, its rank (node, if shared) and its offset."""
Faults = dict[str, set[object]]
"""Findings: kinds of `PlanError`, with sets of rows or wrong places as evidence."""
Event = tuple[str, int]
"""("start", row) or ("end", row)."""
START, END = "start", "end"


@dataclass
class Step:
    """A task, unrolled to elements."""

    row: int
    op: Op
    rank: int
    peer: int
    tag: int
    reads: list[Place]
    writes: list[Place]
    waits: set[Event] = field(default_factory=set)


def blocks(extent: Extent) -> list[int]:
    """Return where the contiguous blocks of an extent begin."""
    stride, repeat, stride2, repeat2 = extent.pattern
    return [
        extent.offset + outer * stride2 + inner * stride
        for outer in range(repeat2)
        for inner in range(repeat)
    ]


def offsets(extent: Extent) -> list[int]:
    return [first + i for first in blocks(extent) for i in range(extent.count)]


def unroll(plan: Plan) -> list[Step]:
    """Return all tasks, element by element."""

    def places(rank: int, extents: Iterable[Extent]) -> list[Place]:
        home = {Buffer.SHARED: int(plan.rank_node[rank])}
        return [
            (extent.buffer.name, home.get(extent.buffer, rank), offset)
            for extent in extents
            for offset in offsets(extent)
        ]

    steps = []
    for task in plan.tasks():
        reads, writes = places(task.rank, task.reads), places(task.rank, task.writes)
        step = Step(task.row, task.op, task.rank, task.peer, task.tag, reads, writes)
        kinds = plan.deps.kind[plan.deps.indptr[task.row] :][: len(task.after)].tolist()
        for before, kind in zip(task.after, kinds, strict=True):
            step.waits.add((START if kind & ON_START else END, before))
        steps.append(step)
    return steps


def needs(steps: list[Step], sender: Mapping[int, int], eager: bool) -> dict[Event, set[Event]]:
    """Return what must have happened before each event can."""
    result: dict[Event, set[Event]] = {}
    for step in steps:
        result[START, step.row] = step.waits
        result[END, step.row] = {(START, step.row)}
    for recv, send in sender.items():
        result[END, recv].add((START, send))
        if not eager:
            result[END, send].add((START, recv))
    return result


def settle(required: Mapping[Event, set[Event]]) -> list[Event]:
    """Return the events that can happen, in an order in which they can."""
    order: list[Event] = []
    happened: set[Event] = set()
    while True:
        ready = [e for e, before in required.items() if e not in happened and before <= happened]
        if not ready:
            return order
        order += ready
        happened |= set(ready)


class Past:
    """The events before every event, as bits of an int: a transitive closure."""

    def __init__(self, required: Mapping[Event, set[Event]]) -> None:
        order = settle(required)
        self.bit = {event: 1 << i for i, event in enumerate(order)}
        self.bits: dict[Event, int] = {}
        for event in order:
            self.bits[event] = self.bit[event]
            for before in required[event]:
                self.bits[event] |= self.bits[before]

    def precedes(self, one: Event, other: Event) -> bool:
        return bool(self.bits[other] & self.bit[one])
