"""The critical path of a simulation, and the kinds of its time.

The path is a chain of events, each of which waited for the one before. The formulas of the cost
model divide the time between two events into kinds. Time that the formulas of a single task do
not explain is waiting: for a processor, the memory of a node, the connections of an adapter, or
a core that switches to another rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Final, Literal

import numpy as np

from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.tables import ENDED, HELD, MATCHED, POSTED, Resource
from collplan.executors.cost.task_durations import Durations, durations_of
from collplan.planner.plan.plan import Op
from collplan.planner.plan.ragged import ON_START
from collplan.specs import Network

WaitedFor = Literal["nothing", "dependency", "message", "resource"]


class Event(Enum):
    """Events of a task: its start, the arrival of its message, or the match of a rendezvous.

    A receive starts when it is posted.
    """

    START = 0
    ARRIVAL = 1
    MATCH = 2


@dataclass(frozen=True, slots=True)
class Visit:
    """An event on the critical path.

    Parameters
    ----------
    row : int
        Row of the task.
    event : Event
        Start of the task at `start_ns`; arrival of the message of a receive; or match of a
        rendezvous send at `end_ns`.
    waited_for : "nothing", "dependency", "message" or "resource"
        Reason why this event waited for the previous one.
    """

    row: int
    event: Event
    waited_for: WaitedFor


def critical_rows(timeline: Timeline) -> tuple[int, ...]:
    """Return the rows of the tasks on the critical path, in order of time.

    Parameters
    ----------
    timeline : Timeline

    Returns
    -------
    tuple of int
        Rows of the plan; none for a plan without tasks.
    """
    # A receive may wait for the core that its own message holds; both events are of one task.
    return tuple(row for row, _ in groupby(visit.row for visit in visits(timeline)))


def visits(timeline: Timeline) -> tuple[Visit, ...]:
    """Return the events on the critical path, in order of time.

    Parameters
    ----------
    timeline : Timeline

    Returns
    -------
    tuple of Visit
        Events; none for a plan without tasks.
    """
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
    """Return the event that completes a task."""
    if timeline.plan.op[row] == Op.RECV and timeline.end_ns[row] > timeline.start_ns[row]:
        return Event.ARRIVAL
    return Event.MATCH if timeline.is_rendezvous[row] else Event.START


def _step_back(timeline: Timeline, row: int, event: Event) -> tuple[int, Event, WaitedFor]:
    """Return the row and event that an event waited for, and the reason; row -1 for none."""
    if event is Event.START:
        return _before_start(timeline, row)
    partner = int(timeline.partner[row])
    send = partner if event is Event.ARRIVAL else row
    if event is Event.MATCH and timeline.start_ns[partner] == timeline.end_ns[row]:
        return partner, Event.START, "message"
    cause = int(timeline.arrival_cause[send])
    if cause == send:
        return send, Event.START, "message"
    # A code of at most -2 means a send that held the core or lane until its rendezvous matched.
    return _holder(timeline, cause) if cause >= 0 else (-2 - cause, Event.MATCH, "resource")


def _before_start(timeline: Timeline, row: int) -> tuple[int, Event, WaitedFor]:
    """Return the row and event that the start of a task waited for, and the reason."""
    cause, reason = int(timeline.cause[row]), timeline.reason[row]
    if cause < 0:
        return -1, Event.START, "nothing"
    if reason == HELD:
        return _holder(timeline, cause)
    if reason == MATCHED:
        return cause, Event.MATCH, "resource"
    if reason == POSTED:
        return cause, Event.START, "message"
    return cause, _completion(timeline, cause) if reason == ENDED else Event.START, "dependency"


def _holder(timeline: Timeline, cause: int) -> tuple[int, Event, WaitedFor]:
    """Return the event from which a task held a core or lane."""
    is_recv = timeline.plan.op[cause] == Op.RECV
    return cause, Event.ARRIVAL if is_recv else Event.START, "resource"


KINDS: Final = ("latency", "bandwidth", "overhead", "copy", "reduce", "compute", "waiting")
"""Kinds of time on the critical path."""
CONTENTION: Final = "contention"
"""An additional kind over a topology: time by which shared links delay messages."""
_WORK: Final = {Op.COPY: "copy", Op.REDUCE: "reduce", Op.COMPUTE: "compute"}
_NOISE: Final = 1e-9
"""Share of the time below which a remainder is a rounding error and not waiting."""

Part = tuple[str, float]
"""A kind of time, and its duration in ns."""


@dataclass(frozen=True, slots=True)
class Leg:
    """The time from one event on the critical path to the next.

    Parameters
    ----------
    row : int
        Row of the task of the first event.
    waited_for : "nothing", "dependency", "message" or "resource"
        Reason why the first event waited for the previous one.
    resource : Resource or None
        The resource that it waited for, if it waited for one.
    begin_ns, end_ns : float
        Start and end of the leg; the next leg starts at `end_ns`.
    queued_ns : float
        Part of the previous leg during which the task was ready and waited for the resource.
    parts : tuple of (kind, ns)
        Kinds of the time in order; their durations add up to the duration of the leg.
    """

    row: int
    waited_for: WaitedFor
    resource: Resource | None
    begin_ns: float
    end_ns: float
    queued_ns: float
    parts: tuple[Part, ...]


def legs(timeline: Timeline, network: Network) -> tuple[Leg, ...]:
    """Return the critical path as legs that cover the time from 0 to the makespan.

    Parameters
    ----------
    timeline : Timeline
    network : Network
        Network of the simulation.

    Returns
    -------
    tuple of Leg
        Legs in order of time; none for a plan without tasks.
    """
    path = visits(timeline)
    if not path:
        return ()
    view = _View(timeline, path, network)
    known = [*view.times, timeline.makespan_ns]
    latest = np.minimum.accumulate(np.array(known)[::-1])[::-1].tolist()
    found: list[Leg] = []
    begin = 0.0
    for i, visit in enumerate(path):
        explained = view.explained(i)
        if i == 0:
            # Only a request to send can precede the first event.
            explained = [*view.handshake(0), *explained]
        end = latest[i + 1]
        resource, queued = None, 0.0
        if visit.waited_for == "resource" and i > 0:
            resource = view.clocks.resource(view.shared(i - 1, i))
            queued = min(max(begin - view.ready_ns(i), 0.0), begin - found[-1].begin_ns)
        parts = _fill(end - begin, [*explained, *view.turns(i)], end, view.rest(i))
        found.append(Leg(visit.row, visit.waited_for, resource, begin, end, queued, parts))
        begin = end
    return tuple(found)


def breakdown(path: Sequence[Leg]) -> dict[str, float]:
    """Return the time of a critical path by kind in ns, which adds up to the makespan.

    Contention is left out if there is none.

    Parameters
    ----------
    path : sequence of Leg
        Critical path, as `legs` returns it.

    Returns
    -------
    dict of str to float
        Time in ns for each of `KINDS`, and for `CONTENTION` if it is not left out.
    """
    parts = [part for leg in path for part in leg.parts]
    found = {kind: math.fsum(ns for name, ns in parts if name == kind) for kind in KINDS}
    shared = [ns for name, ns in parts if name == CONTENTION]
    return found | {CONTENTION: math.fsum(shared)} if shared else found


def _fill(span: float, explained: list[Part], end: float, rest: str) -> tuple[Part, ...]:
    """Fill a span of time with the explained parts in order; the remainder is of kind `rest`."""
    parts: list[Part] = []
    left = span
    for kind, ns in explained:
        taken = min(ns, left)
        if taken > 0:
            parts.append((kind, taken))
            left -= taken
    if left > end * _NOISE or not parts:
        return (*parts, (rest, left)) if left > 0 else tuple(parts)
    kind, ns = parts[-1]
    return (*parts[:-1], (kind, ns + left))


class _View:
    """The events of a path, and the parts of time that the cost model gives for each."""

    def __init__(self, timeline: Timeline, path: tuple[Visit, ...], network: Network) -> None:
        self.timeline, self.path, self.clocks = timeline, path, timeline.places.clocks
        rows = np.array([visit.row for visit in path], dtype=np.int64)
        self.op = [Op(op) for op in timeline.plan.op[rows].tolist()]
        times = (timeline.start_ns, timeline.arrival_ns, timeline.end_ns)
        self.times = [float(times[visit.event.value][visit.row]) for visit in path]
        self.is_asking: list[bool] = timeline.is_asking[rows].tolist()
        held = timeline.places.take(rows)
        self.durations: Durations = durations_of(held, network)
        self.is_shared = [False] * len(rows)
        if timeline.alone_ns is not None and timeline.delays_ns is not None:
            alone = timeline.alone_ns[rows]
            self.is_shared = (alone > 0).tolist()
            self.durations = replace(
                self.durations,
                latency_ns=self.durations.latency_ns + timeline.delays_ns[rows],
                wire_ns=np.maximum(self.durations.wire_ns, alone),
            )
        # A rendezvous send waits for its match at the core and lane of the receiver.
        is_match = np.array([visit.event is Event.MATCH for visit in path])
        wanted = timeline.places.take(np.where(is_match, timeline.partner[rows], rows))
        other = timeline.places.take(timeline.partner[rows])
        self.core, self.lane = held.core.tolist(), held.lane.tolist()
        self.wanted_core, self.wanted_lane = wanted.core.tolist(), wanted.lane.tolist()
        self.other_core, self.other_lane = other.core.tolist(), other.lane.tolist()

    def explained(self, i: int) -> list[Part]:
        """Return the parts that the formulas give for the time from event i to the next."""
        following = self.path[i + 1] if i + 1 < len(self.path) else None
        parts: list[Part] = []
        if self.path[i].event is Event.ARRIVAL:
            parts = self._arrival(i, following)
        elif self.path[i].event is Event.START and self.op[i] is Op.SEND:
            parts = self._send(i, following)
        elif self.path[i].event is Event.START and self.op[i] in _WORK:
            parts = [(_WORK[self.op[i]], float(self.durations.core_ns[i]))]
        if following is not None and following.waited_for == "dependency":
            parts.append(("latency", self.timeline.flag_ns(self.path[i].row, following.row)))
        if following is not None and following.waited_for != "resource":
            handshake = self.handshake(i + 1)
            # If the receive is posted late, only the answer follows it: the second half of parts.
            parts += handshake[2:] if following.waited_for == "message" else handshake
        return parts

    def handshake(self, i: int) -> list[Part]:
        """Return the parts of a request to send and its answer before event i."""
        if not self.is_asking[i] or self.path[i].event is not Event.START:
            return []
        flight = self._flight(i)
        return [*flight, *flight]

    def turns(self, i: int) -> list[Part]:
        """Return the time of other messages on the lanes while message i is sent in pieces."""
        if not self.durations.is_cut[i] or not self._holds_lane(i):
            return []
        busy_ns = np.moveaxis(self.timeline.lane_busy_ns, 2, 0).ravel()
        ends = np.array((self.lane[i], self.other_lane[i])) - self.clocks.lane_out
        return [("bandwidth", max(0.0, float(busy_ns[ends].sum() - 2 * self.durations.lane_ns[i])))]

    def rest(self, i: int) -> str:
        """Return the kind of the time after event i that formulas do not explain."""
        is_arrival = self.path[i].event is Event.ARRIVAL
        return CONTENTION if is_arrival and self.is_shared[i] else "waiting"

    def _flight(self, i: int) -> list[Part]:
        """Return the parts from the start of a send to the arrival of its message."""
        durations = self.durations
        return [
            ("overhead", float(durations.overhead_ns[i])),
            ("latency", float(durations.latency_ns[i])),
        ]

    def _send(self, i: int, following: Visit | None) -> list[Part]:
        """Return the parts from the start of a send to the next event."""
        durations = self.durations
        pieces = float(durations.pieces_ns[i])
        in_core: list[Part] = [("overhead", float(durations.core_ns[i]) - pieces), ("copy", pieces)]
        if following is not None and following.waited_for == "message":
            # If both ranks share a core, the message may have to wait until its send ends.
            flight = float(durations.overhead_ns[i] + durations.latency_ns[i])
            is_long = durations.core_ns[i] > flight and self.core[i] == self.other_core[i]
            return in_core if is_long else self._flight(i)
        by_lane: list[Part] = [("bandwidth", float(durations.lane_ns[i]))]
        if following is not None and following.waited_for == "resource":
            if self._shares_lane(i, i + 1):
                return by_lane
        elif (self.is_asking[i] or durations.is_cut[i]) and durations.lane_ns[
            i
        ] > durations.core_ns[i]:
            return by_lane
        return in_core

    def _arrival(self, i: int, following: Visit | None) -> list[Part]:
        """Return the parts from the arrival of a message to the next event."""
        durations = self.durations
        waits = following is not None and following.waited_for == "resource"
        if waits and self._shares_lane(i, i + 1):
            return [("bandwidth", float(durations.lane_ns[i]))]
        touch, wire = float(durations.touch_ns[i]), float(durations.wire_ns[i])
        pieces = float(durations.pieces_ns[i])
        bytes_: list[Part] = [("bandwidth", wire)]
        if touch + pieces > wire:
            bytes_ = [("overhead", touch), ("copy", pieces)]
        return [("overhead", float(durations.overhead_ns[i])), *bytes_]

    def _holds_lane(self, i: int) -> bool:
        """Return whether event i holds a lane or port."""
        event = self.path[i].event
        return event is Event.ARRIVAL or (event is Event.START and self.op[i] is Op.SEND)

    def shared(self, i: int, j: int) -> int:
        """Return the clock that event i held and event j waited for.

        If both tasks use the same core, lane or port, this is its clock. Otherwise, it is the
        clock of the processors.
        """
        core, lane, durations = self.core[i], self.lane[i], self.durations
        has_core = bool(core == self.wanted_core[j])
        wants_lane = self.path[j].event is Event.MATCH or self._holds_lane(j)
        has_lane = self._holds_lane(i) and wants_lane and lane == self.wanted_lane[j]
        if has_lane and not (has_core and durations.core_ns[i] >= durations.lane_ns[i]):
            return int(lane)
        return int(core) if has_core else self.clocks.processor

    def _shares_lane(self, i: int, j: int) -> bool:
        return self.clocks.resource(self.shared(i, j)).kind in ("lane", "port")

    def ready_ns(self, i: int) -> float:
        """Return the time in ns from which event i waited for nothing but a resource."""
        row, timeline = self.path[i].row, self.timeline
        if self.path[i].event is not Event.START:
            send = int(timeline.partner[row]) if self.op[i] is Op.RECV else row
            flight = float(self.durations.overhead_ns[i] + self.durations.latency_ns[i])
            return float(timeline.start_ns[send]) + flight
        deps = timeline.plan.deps
        own = slice(int(deps.indptr[row]), int(deps.indptr[row + 1]))
        before, on_start = deps.task[own], deps.kind[own] & ON_START
        times = np.where(on_start, timeline.start_ns[before], timeline.end_ns[before])
        times = times + np.array([timeline.flag_ns(int(task), row) for task in before])
        return float(times.max(initial=0.0))
