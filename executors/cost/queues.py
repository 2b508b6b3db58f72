"""Queues of tasks that wait for cores and lanes.

Every task, and every arrival of a message, belongs to a *queue*: the tasks of a rank that need the
same core and the same direction of a lane. A queue serves its tasks in the order in which they
became ready, so that only its first task competes with others. A queue that needs no lane has an
event of its own, at the time when the core is free, with the stamp of its first task. Queues that
need a lane wait in the *line* of the lane. The line has one event, with the time and the stamp of
the queue that can be served first. If a clock has advanced by the time the event is popped, the
queue competes again. Tasks are therefore served exactly in the order of readiness, regardless of
how many queues share a lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.executors.cost.event_queue import push
from collplan.executors.cost.prefetching import prefetch
from collplan.executors.cost.tables import HELD, MATCHED, Records, Simulation, inlined, inner


@inner
def hold(clocks: Records, clock: int, row: int, now: float, duration: float) -> float:
    """Let a task hold a clock for a duration in ns; return the end."""
    clocks[clock].time = now + duration
    clocks[clock].busy += max(0.0, duration)
    clocks[clock].holder = row
    return now + duration


@inner
def last_holder(clocks: Records, queues: Records, queue: int, now: float) -> int:
    """Return the task that held the core or lane for which a queue had to wait until now."""
    core = clocks[queues[queue].awaits]
    return int(core.holder if core.time == now else clocks[queues[queue].lane].holder)


@inlined
def blame(task: Any, holder: int) -> None:
    """Record that a task waited for the holder of a clock."""
    task.cause, task.reason = holder, HELD
    if holder < -1:
        task.cause, task.reason = -2 - holder, MATCHED


@inner
def free_at(clocks: Records, queues: Records, queue: int) -> float:
    """Return the time when both clocks of a queue are free."""
    return float(max(clocks[queues[queue].awaits].time, clocks[queues[queue].lane].time))


@inlined
def enqueue(sim: Simulation, queue: int, row: int, now: float) -> None:
    """Append a task to its queue; if it is the first task, the queue competes."""
    tasks, queues = sim.tasks, sim.queues
    tasks[row].following = -1
    if queues[queue].first >= 0:
        tasks[queues[queue].last].following = row
    else:
        queues[queue].first = row
        _announce(sim, queue, now)
    queues[queue].last = row


@inlined
def advance(sim: Simulation, queue: int, row: int, now: float) -> None:
    """Make `row` the first task of a queue after it was served; -1 leaves the queue empty."""
    clocks, queues = sim.clocks, sim.queues
    queues[queue].first = row
    lane = queues[queue].lane
    if lane == len(clocks) - 1:
        if row >= 0:
            _announce(sim, queue, now)
        return
    if row >= 0:
        task = sim.tasks[row]
        prefetch(sim.tasks, task.partner)
        prefetch(sim.tasks, task.following)
        queues[queue].stamp = task.stamp
        _line_up(clocks, queues, queue)
    first, time = _first_served(clocks, queues, lane, now)
    if first >= 0:
        _claim(sim, lane, time, first)


@inlined
def leave_line(sim: Simulation, lane: int, now: float, stamp: int) -> int:
    """Remove and return the queue of a line that is served now; return -1 if there is none."""
    clocks, queues = sim.clocks, sim.queues
    clock = clocks[lane]
    if clock.event_time != now or clock.event_stamp != stamp:
        return -1
    clock.event_time = np.inf
    queue = clock.candidate
    # Clocks only advance, so no other queue can be served before the candidate.
    if clock.time > now or clocks[queues[queue].awaits].time > now:
        queue, time = _first_served(clocks, queues, lane, now)
        if time > now or queues[queue].stamp != stamp:
            _claim(sim, lane, time, queue)
            return -1
    before, after = queues[queue].previous, queues[queue].next
    if before >= 0:
        queues[before].next = after
    else:
        clock.first = after
    if after >= 0:
        queues[after].previous = before
    else:
        clock.last = before
    return int(queue)


@inlined
def _announce(sim: Simulation, queue: int, now: float) -> None:
    """Let a queue compete, either with an event of its own or in the line of its lane."""
    clocks, queues = sim.clocks, sim.queues
    stamp = sim.tasks[queues[queue].first].stamp
    queues[queue].stamp = stamp
    lane = queues[queue].lane
    time = max(now, free_at(clocks, queues, queue))
    if lane == len(clocks) - 1:
        push(sim.runs, sim.entries, time, stamp, queue)
    else:
        _line_up(clocks, queues, queue)
        _claim(sim, lane, time, queue)


@inlined
def _line_up(clocks: Records, queues: Records, queue: int) -> None:
    """Insert a queue into the line of its lane, which is sorted by stamps."""
    lane = clocks[queues[queue].lane]
    stamp = queues[queue].stamp
    before, after = -1, lane.first
    if after >= 0 and queues[lane.last].stamp <= stamp:
        before, after = lane.last, -1
    while after >= 0 and queues[after].stamp <= stamp:
        before, after = after, queues[after].next
    queues[queue].next = after
    queues[queue].previous = before
    if before >= 0:
        queues[before].next = queue
    else:
        lane.first = queue
    if after >= 0:
        queues[after].previous = queue
    else:
        lane.last = queue


@inlined
def _first_served(clocks: Records, queues: Records, lane: int, now: float) -> tuple[int, float]:
    """Return the queue of a line that can be served first, and the time."""
    free = max(now, clocks[lane].time)
    first, time = -1, np.inf
    queue = clocks[lane].first
    while queue >= 0 and time > free:
        core = clocks[queues[queue].awaits]
        if core.time < time:
            first, time = queue, max(free, core.time)
        queue = queues[queue].next
    return first, time


@inlined
def _claim(sim: Simulation, lane: int, time: float, queue: int) -> None:
    """Give the line of a lane an event for a queue, unless it has an earlier one.

    An event that comes too early does no harm. An event that was replaced by an earlier one is
    ignored when it is popped.
    """
    clock, stamp = sim.clocks[lane], sim.queues[queue].stamp
    if time < clock.event_time or (time == clock.event_time and stamp < clock.event_stamp):
        clock.event_time = time
        clock.event_stamp = stamp
        clock.candidate = queue
        push(sim.runs, sim.entries, time, stamp, len(sim.queues) + len(sim.tasks) + lane)
