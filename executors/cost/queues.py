"""What tasks are to the simulator, and where they wait for cores and lanes.

Every task belongs to a *queue*: tasks of a rank that need the same core and
the same direction of a lane, arrivals of messages included. A queue serves its
tasks in the order they became ready, so only its first one competes. Queues
that need a core only stand in the event queue themselves, under the time that
the core is free and the first task's stamp of readiness. Those that need a lane
stand in the lane's *line*, and the line in the event queue, under the time and
stamp of the queue that can be served first. When an event comes up and a clock
has moved on meanwhile, it competes again. So waiting and same-time tasks are
served in the order of readiness, exactly, however many share a lane.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.executors.cost.event_queue import Records, compiled, compiled_inline, push

TASK: Final = np.dtype(
    [
        ("work", "f8"),  # bytes, or the ns of a computation
        ("start", "f8"),  # until the task runs: the time its predecessors allow
        ("end", "f8"),
        ("queue", "i4"),
        ("partner", "i4"),  # the other end of a message
        ("pending", "i4"),  # predecessors it waits for
        ("successors", "i4"),  # where its successors end; they begin where the row before ends
        ("stamp", "i4"),  # order of readiness; of a send that has run: of its message
        ("following", "i4"),  # next in the queue; of a message taken in: what it waited for
        ("cause", "i4"),
        ("op", "i1"),
        ("link", "i1"),
        ("state", "i1"),
    ],
    align=True,
)
CLOCK: Final = np.dtype(
    [
        ("time", "f8"),
        ("busy", "f8"),
        ("event_time", "f8"),  # of the event of the line, infinite where it has none
        ("event_stamp", "i4"),
        ("first", "i4"),  # the line: queues that wait for this lane, by stamp
        ("last", "i4"),
        ("holder", "i4"),
        ("rank", "i4"),  # of the last task of a core, where changing it costs anything
    ],
    align=True,
)
"""A core, one direction of a lane or port, a memory, or a processor.

`holder` is the row that moved the clock last, or ``-2 - row`` where the match
of rendezvous send `row` did; -1 before anything did.
"""
QUEUE: Final = np.dtype(
    [
        ("core", "i4"),  # that does the work
        ("awaits", "i4"),  # the clock that has to be free: the core, or none
        ("lane", "i4"),
        ("rank", "i4"),
        ("node", "i4"),
        ("first", "i4"),  # tasks, linked by `following`
        ("last", "i4"),
        ("stamp", "i4"),  # of the first task
        ("next", "i4"),  # in the line of the lane
    ]
)
"""Tasks of a rank that wait for one core and one direction of a lane."""


@compiled
def hold(clocks: Records, clock: int, row: int, now: float, duration: float) -> float:
    clocks[clock].time = now + duration
    clocks[clock].busy += max(0.0, duration)
    clocks[clock].holder = row
    return now + duration


@compiled
def busier(clocks: Records, queues: Records, queue: int, now: float) -> int:
    """Return who held what a task of `queue` had to wait for until now."""
    core = clocks[queues[queue].awaits]
    return int(core.holder if core.time == now else clocks[queues[queue].lane].holder)


@compiled
def free_at(clocks: Records, queues: Records, queue: int) -> float:
    """Return when both clocks of a queue are free."""
    return float(max(clocks[queues[queue].awaits].time, clocks[queues[queue].lane].time))


@compiled_inline
def enqueue(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    queue: int,
    row: int,
    now: float,
) -> None:
    tasks[row].following = -1
    if queues[queue].first >= 0:
        tasks[queues[queue].last].following = row
    else:
        queues[queue].first = row
        _announce(tasks, clocks, queues, runs, entries, queue, now)
    queues[queue].last = row


@compiled_inline
def advance(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    queue: int,
    row: int,
    now: float,
) -> None:
    """Make `row` the first task of a queue that was served, or leave the queue empty."""
    queues[queue].first = row
    lane = queues[queue].lane
    if lane == len(clocks) - 1:
        if row >= 0:
            _announce(tasks, clocks, queues, runs, entries, queue, now)
        return
    if row >= 0:
        queues[queue].stamp = tasks[row].stamp
        _line_up(clocks, queues, queue)
    _, first, time = _first_served(clocks, queues, lane, now)
    if first >= 0:
        base = len(queues) + len(tasks)
        _claim(clocks, runs, entries, base, lane, time, queues[first].stamp)


@compiled_inline
def call(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    lane: int,
    now: float,
    stamp: int,
) -> int:
    """Take the queue out of a line that is served now, or return -1 where none is."""
    clock = clocks[lane]
    if clock.event_time != now or clock.event_stamp != stamp:
        return -1
    clock.event_time = np.inf
    before, queue, time = _first_served(clocks, queues, lane, now)
    if queue < 0:
        return -1
    if time > now or queues[queue].stamp != stamp:
        base = len(queues) + len(tasks)
        _claim(clocks, runs, entries, base, lane, time, queues[queue].stamp)
        return -1
    after = queues[queue].next
    if before >= 0:
        queues[before].next = after
    else:
        clock.first = after
    if after < 0:
        clock.last = before
    return int(queue)


@compiled_inline
def _announce(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    queue: int,
    now: float,
) -> None:
    """Let the first task of a queue compete: as an event, or in the line of its lane."""
    stamp = tasks[queues[queue].first].stamp
    queues[queue].stamp = stamp
    lane = queues[queue].lane
    time = max(now, free_at(clocks, queues, queue))
    if lane == len(clocks) - 1:
        push(runs, entries, time, stamp, queue)
    else:
        _line_up(clocks, queues, queue)
        _claim(clocks, runs, entries, len(queues) + len(tasks), lane, time, stamp)


@compiled_inline
def _line_up(clocks: Records, queues: Records, queue: int) -> None:
    """Insert a queue into the line of its lane, by stamp."""
    lane = clocks[queues[queue].lane]
    stamp = queues[queue].stamp
    before, after = -1, lane.first
    if after >= 0 and queues[lane.last].stamp < stamp:
        before, after = lane.last, -1
    while after >= 0 and queues[after].stamp < stamp:
        before, after = after, queues[after].next
    queues[queue].next = after
    if before >= 0:
        queues[before].next = queue
    else:
        lane.first = queue
    if after < 0:
        lane.last = queue


@compiled_inline
def _first_served(
    clocks: Records, queues: Records, lane: int, now: float
) -> tuple[int, int, float]:
    """Return the queue of a line that can be served first, the one before it, and when."""
    free = max(now, clocks[lane].time)
    before, first, time = -1, -1, np.inf
    previous, queue = -1, clocks[lane].first
    while queue >= 0 and time > free:
        core = clocks[queues[queue].awaits]
        if core.time < time:
            before, first, time = previous, queue, max(free, core.time)
        previous, queue = queue, queues[queue].next
    return before, first, time


@compiled_inline
def _claim(
    clocks: Records, runs: Records, entries: Records, base: int, lane: int, time: float, stamp: int
) -> None:
    """Give the line of a lane an event, unless it has one early enough.

    One that comes too early is harmless, and one that is no longer the line's is stale.
    """
    clock = clocks[lane]
    if time < clock.event_time or (time == clock.event_time and stamp < clock.event_stamp):
        clock.event_time = time
        clock.event_stamp = stamp
        push(runs, entries, time, stamp, base + lane)
