"""Walk back from the last task: what did each one really wait for?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

import numpy as np

from collplan.planner.plan.plan import ON_START, Op

if TYPE_CHECKING:
    from collplan.executors.cost.timeline import Timeline

WaitedFor = Literal["nothing", "dependency", "message", "resource"]


@dataclass(frozen=True, slots=True)
class Step:
    """One task of the critical path.

    Parameters
    ----------
    row : int
        The task.
    waited_for : "nothing", "dependency", "message" or "resource"
        What ties it to the step before: a dependency of the plan, a message
        (or, for a rendezvous send, its receive), or a core, lane or port that
        the step before held.
    """

    row: int
    waited_for: WaitedFor


class Event(Enum):
    """What of a task the path goes through: a receive is posted, then its message arrives."""

    START = 0
    ARRIVAL = 1
    MATCH = 2


@dataclass(frozen=True, slots=True)
class Visit:
    """An event of a task that the path goes through.

    Parameters
    ----------
    row : int
        The task.
    event : Event
        Its start at `start_ns`; a receive's message arriving; or a rendezvous
        send's match, at `end_ns`.
    waited_for : "nothing", "dependency", "message" or "resource"
        What ties it to the visit before.
    """

    row: int
    event: Event
    waited_for: WaitedFor


def critical_path(timeline: Timeline) -> tuple[Step, ...]:
    """Return the chain of tasks that ends last, from one that starts at 0."""
    steps: list[Step] = []
    for visit in visits(timeline):
        # A receive's posting may wait for the core that its own message holds: one step.
        if not steps or steps[-1].row != visit.row:
            steps.append(Step(visit.row, visit.waited_for))
    return tuple(steps)


def critical_rows(timeline: Timeline) -> tuple[int, ...]:
    """Return the rows of the critical path's tasks, each of which waits for the one before."""
    return tuple(step.row for step in critical_path(timeline))


def visits(timeline: Timeline) -> tuple[Visit, ...]:
    """Return the events of the critical path, from the first to the last."""
    if not len(timeline.end_ns):
        return ()
    found: list[Visit] = []
    row = int(np.argmax(timeline.end_ns))
    event = _completion(timeline, row)
    while row >= 0:
        before, event_before, waited_for = _step_back(timeline, row, event)
        found.append(Visit(row, event, waited_for))
        row, event = before, event_before
    return tuple(reversed(found))


def _completion(timeline: Timeline, row: int) -> Event:
    """Return the event that completed a task."""
    if timeline.plan.op[row] == Op.RECV and timeline.end_ns[row] > timeline.start_ns[row]:
        return Event.ARRIVAL
    return Event.MATCH if timeline.is_rendezvous[row] else Event.START


def _step_back(timeline: Timeline, row: int, event: Event) -> tuple[int, Event, WaitedFor]:
    if event is Event.START:
        return _before_start(timeline, row)
    partner = int(timeline.partner[row])
    send = partner if event is Event.ARRIVAL else row
    if event is Event.MATCH and timeline.start_ns[partner] == timeline.end_ns[row]:
        return partner, Event.START, "message"
    cause = int(timeline.arrival_cause[send])
    if cause == send:
        return send, Event.START, "message"
    return _holder(timeline, cause)


def _before_start(timeline: Timeline, row: int) -> tuple[int, Event, WaitedFor]:
    cause = int(timeline.cause[row])
    if timeline.is_asking[row] and cause <= -2:
        return _before_request(timeline, row, -2 - cause)
    if cause == -1:
        return -1, Event.START, "nothing"
    deps = timeline.plan.deps
    start = timeline.start_ns[row]
    for i in range(deps.indptr[row], deps.indptr[row + 1]):
        if deps.task[i] == cause:
            flag_ns = timeline.flag_ns(cause, row)
            if deps.kind[i] & ON_START:
                if timeline.start_ns[cause] + flag_ns == start:
                    return cause, Event.START, "dependency"
            elif timeline.end_ns[cause] + flag_ns == start:
                return cause, _completion(timeline, cause), "dependency"
    return _holder(timeline, cause)


def _before_request(timeline: Timeline, row: int, cause: int) -> tuple[int, Event, WaitedFor]:
    """Return what the answer to a send's request waited for: its receive, or a predecessor."""
    deps = timeline.plan.deps
    for i in range(deps.indptr[row], deps.indptr[row + 1]):
        if deps.task[i] == cause:
            on_start = deps.kind[i] & ON_START
            return cause, Event.START if on_start else _completion(timeline, cause), "dependency"
    if cause == timeline.partner[row]:
        return cause, Event.START, "message"
    return -1, Event.START, "nothing"


def _holder(timeline: Timeline, cause: int) -> tuple[int, Event, WaitedFor]:
    """Decode the task that held a core or lane: with its work, or until a rendezvous matched."""
    if cause <= -2:
        return -2 - cause, Event.MATCH, "resource"
    is_recv = timeline.plan.op[cause] == Op.RECV
    return cause, Event.ARRIVAL if is_recv else Event.START, "resource"
