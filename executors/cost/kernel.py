"""The simulator's engine: LogGPS on many cores and lanes, event by event.

Every task belongs to a *queue*: tasks of a rank that need the same core and
the same direction of a lane, arrivals of messages included. A queue serves its
tasks in the order they became ready, so only its first one competes, under the
earliest time both clocks could serve it and its stamp of readiness. Where its
core is what it waits for, it stands in the event queue; where the lane is, in
the lane's *line*, of which again only the first queue stands in the event
queue. When its event comes up and a clock has moved on meanwhile, it competes
again. So waiting and same-time tasks are served in the order of readiness,
exactly, however many share a lane.

A receive that is posted before its message arrives needs no event at all: the
arrival compares itself with the time and stamp of the posting.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from executors.cost.event_queue import Records, compiled, earliest, pop, push

_SEND, _RECV = 0, 1
_L, _o, _g, _G, _O = 0, 1, 2, 3, 4
_STAMP, _DONE = 0, 1
HAS_ON_START, RENDEZVOUS, ARRIVED, QUEUED = 1, 2, 4, 8
"""Bits of a task's state: a successor waits for its start; it is a send above the eager limit;
its message is here; its posting has an event."""

TASK: Final = np.dtype(
    [
        ("work", "f8"),  # bytes of a message, else the ns that hold the core
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
    ],
    align=True,
)
"""A core, or one direction of a lane or port.

`holder` is the row that moved the clock last, or ``-2 - row`` where the match
of rendezvous send `row` did; -1 before anything did.
"""
QUEUE: Final = np.dtype(
    [
        ("core", "i4"),
        ("lane", "i4"),
        ("rank", "i4"),
        ("first", "i4"),  # tasks, linked by `following`
        ("last", "i4"),
        ("stamp", "i4"),  # of the first task
        ("next", "i4"),  # in the line of the lane
    ]
)
"""Tasks of a rank that wait for one core and one direction of a lane."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Counters = npt.NDArray[np.int64]


@compiled
def run(
    tasks: Records,
    successors: Ints,
    initial: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    links: Floats,
) -> int:
    """Simulate until no event is left and return how many tasks are done.

    Event ids: ``0 <= id < n_queues`` is a queue's first task, ``n_queues +
    row`` a task that becomes ready (or a receive that is posted) later,
    ``n_queues + n_tasks + clock`` the line of a lane, and ``-1 - row`` the
    arrival of the message that send `row` sent.
    """
    n_queues, n_tasks = len(queues), len(tasks)
    for row in initial:
        _make_ready(tasks, clocks, queues, runs, entries, counters, row)
    while True:
        place = earliest(runs)
        if place < 0:
            return int(counters[_DONE])
        now = runs[place].head_time
        stamp = runs[place].head_stamp
        event = pop(runs, entries, place)
        if event >= n_queues + n_tasks:
            lane = event - n_queues - n_tasks
            event = _call(clocks, queues, runs, entries, n_queues + n_tasks, lane, now, stamp)
            if event < 0:
                continue
        elif event >= n_queues:
            row = event - n_queues
            if tasks[row].op != _RECV:
                counters[_STAMP] += 1
                tasks[row].stamp = counters[_STAMP]
                _enqueue(tasks, clocks, queues, runs, entries, tasks[row].queue, row, now)
            elif tasks[row].state & ARRIVED:
                _match(tasks, successors, clocks, queues, runs, entries, counters, row, now, True)
            else:
                _release(
                    tasks, successors, clocks, queues, runs, entries, counters, row, True, False
                )
            continue
        row = -1 - event
        if event >= 0:
            if _free(clocks, queues, event) > now:
                _announce(tasks, clocks, queues, runs, entries, event, now)
                continue
            row = queues[event].first
            if tasks[row].queue == event:
                _execute(
                    tasks, successors, clocks, queues, runs, entries, counters, links, row, now
                )
                continue
        recv = tasks[row].partner
        queue = tasks[recv].queue
        if event < 0 and (queues[queue].first >= 0 or _free(clocks, queues, queue) > now):
            _enqueue(tasks, clocks, queues, runs, entries, queue, row, now)
            continue
        following = tasks[row].following
        _receive(tasks, clocks, queues, links, row, now)
        if event >= 0:
            _advance(tasks, clocks, queues, runs, entries, queue, following, now)
        tasks[recv].state |= ARRIVED
        if tasks[recv].pending > 0:
            continue
        posted = tasks[recv].start
        if posted < now or (posted == now and tasks[recv].stamp < stamp):
            _match(tasks, successors, clocks, queues, runs, entries, counters, recv, now, False)
        elif not tasks[recv].state & QUEUED:
            tasks[recv].state |= QUEUED
            push(runs, entries, posted, tasks[recv].stamp, n_queues + recv)


@compiled
def _free(clocks: Records, queues: Records, queue: int) -> float:
    """Return when both clocks of a queue are free."""
    return float(max(clocks[queues[queue].core].time, clocks[queues[queue].lane].time))


@compiled
def _enqueue(
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


@compiled
def _advance(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    queue: int,
    row: int,
    now: float,
) -> None:
    """Make `row` the first task of its queue, or leave the queue empty where it is -1."""
    queues[queue].first = row
    if row >= 0:
        _announce(tasks, clocks, queues, runs, entries, queue, now)
    _arm(clocks, queues, runs, entries, len(queues) + len(tasks), queues[queue].lane)


@compiled
def _announce(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    queue: int,
    now: float,
) -> None:
    """Let the first task of a queue compete: as an event, or in the line of a busier lane."""
    stamp = tasks[queues[queue].first].stamp
    queues[queue].stamp = stamp
    free = max(now, clocks[queues[queue].core].time)
    lane = clocks[queues[queue].lane]
    if lane.time <= free:
        push(runs, entries, free, stamp, queue)
        return
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
    _arm(clocks, queues, runs, entries, len(queues) + len(tasks), queues[queue].lane)


@compiled
def _arm(
    clocks: Records, queues: Records, runs: Records, entries: Records, base: int, lane: int
) -> None:
    """Give the line of a lane an event where it has none, or none early enough.

    One that comes too early is harmless, and one that is no longer the line's is stale.
    """
    clock = clocks[lane]
    if clock.first < 0:
        return
    stamp = queues[clock.first].stamp
    if clock.time < clock.event_time or (
        clock.time == clock.event_time and stamp < clock.event_stamp
    ):
        clock.event_time = clock.time
        clock.event_stamp = stamp
        push(runs, entries, clock.time, stamp, base + lane)


@compiled
def _call(
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    base: int,
    lane: int,
    now: float,
    stamp: int,
) -> int:
    """Return the first queue in the line of a lane where it can be served now, else -1."""
    clock = clocks[lane]
    if clock.event_time != now or clock.event_stamp != stamp:
        return -1
    clock.event_time = np.inf
    queue = clock.first
    if clock.time <= now:
        clock.first = queues[queue].next
        core = clocks[queues[queue].core]
        if core.time <= now:
            return int(queue)
        push(runs, entries, core.time, stamp, queue)
    _arm(clocks, queues, runs, entries, base, lane)
    return -1


@compiled
def _hold(clocks: Records, clock: int, row: int, now: float, duration: float) -> float:
    clocks[clock].time = now + duration
    clocks[clock].busy += max(0.0, duration)
    clocks[clock].holder = row
    return now + duration


@compiled
def _busier(clocks: Records, queues: Records, queue: int, now: float) -> int:
    """Return who held what a task of `queue` had to wait for until now."""
    core = clocks[queues[queue].core]
    return int(core.holder if core.time == now else clocks[queues[queue].lane].holder)


@compiled
def _execute(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    links: Floats,
    row: int,
    now: float,
) -> None:
    """Run a send, a copy, a reduction or a computation: the first of its queue."""
    task = tasks[row]
    queue = task.queue
    core, lane = queues[queue].core, queues[queue].lane
    if task.start < now:
        task.cause = _busier(clocks, queues, queue, now)
    task.start = now
    ends = True
    if task.op == _SEND:
        link = links[task.link]
        more = task.work - 1
        end = _hold(clocks, core, row, now, link[_o] + more * link[_O])
        _hold(clocks, lane, row, now, link[_g] + more * link[_G])
        _advance(tasks, clocks, queues, runs, entries, queue, task.following, now)
        counters[_STAMP] += 1
        task.stamp = counters[_STAMP]
        push(runs, entries, now + link[_o] + link[_L], task.stamp, -1 - row)
        ends = not task.state & RENDEZVOUS
        if ends:
            task.end = end
    else:
        task.end = _hold(clocks, core, row, now, task.work)
        _advance(tasks, clocks, queues, runs, entries, queue, task.following, now)
    counters[_DONE] += ends
    _release(tasks, successors, clocks, queues, runs, entries, counters, row, True, ends)


@compiled
def _receive(
    tasks: Records, clocks: Records, queues: Records, links: Floats, row: int, now: float
) -> None:
    """Charge the receiver for the message of send `row`."""
    send = tasks[row]
    recv = tasks[send.partner]
    link = links[send.link]
    waited = now > send.start + link[_o] + link[_L]
    send.following = _busier(clocks, queues, recv.queue, now) if waited else row
    more = send.work - 1
    held = link[_o] + max(more * link[_O], more * link[_G])
    recv.end = _hold(clocks, queues[recv.queue].core, send.partner, now, held)
    _hold(clocks, queues[recv.queue].lane, send.partner, now, link[_g] + more * link[_G])


@compiled
def _match(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    row: int,
    now: float,
    starts: bool,
) -> None:
    """Complete receive `row`, and its send where that waited for the match."""
    recv = tasks[row]
    recv.end = max(recv.end, now)
    counters[_DONE] += 1
    send = tasks[recv.partner]
    sender = queues[send.queue]
    first, last = -1, -1
    if send.state & RENDEZVOUS:
        counters[_DONE] += 1
        send.end = now
        for clock in (sender.core, sender.lane):
            if clocks[clock].time < now:
                clocks[clock].time = now
                clocks[clock].holder = -2 - recv.partner
        if sender.rank <= queues[recv.queue].rank:
            first = recv.partner
        else:
            last = recv.partner
    if first >= 0:
        _release(tasks, successors, clocks, queues, runs, entries, counters, first, False, True)
    _release(tasks, successors, clocks, queues, runs, entries, counters, row, starts, True)
    if last >= 0:
        _release(tasks, successors, clocks, queues, runs, entries, counters, last, False, True)


@compiled
def _release(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    row: int,
    starts: bool,
    ends: bool,
) -> None:
    """Tell the successors of `row` that it starts, ends, or both."""
    begin = tasks[row - 1].successors if row > 0 else 0
    for i in range(begin, tasks[row].successors):
        successor = tasks[successors[i] >> 1]
        if successors[i] & 1:
            if not starts:
                continue
            time = tasks[row].start
        else:
            if not ends:
                continue
            time = tasks[row].end
        if time >= successor.start:
            successor.start = time
            successor.cause = row
        successor.pending -= 1
        if successor.pending == 0:
            _make_ready(tasks, clocks, queues, runs, entries, counters, successors[i] >> 1)


@compiled
def _make_ready(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    row: int,
) -> None:
    """Stamp a task whose predecessors are done, and queue it; a receive is posted."""
    counters[_STAMP] += 1
    task = tasks[row]
    task.stamp = counters[_STAMP]
    if task.op == _RECV:
        core = clocks[queues[task.queue].core]
        if task.start < core.time:
            task.start = core.time
            task.cause = core.holder
        if task.state & (ARRIVED | HAS_ON_START):
            task.state |= QUEUED
            push(runs, entries, task.start, task.stamp, len(queues) + row)
        return
    free = _free(clocks, queues, task.queue)
    if task.start > free:
        # A predecessor on another core ends later: the task becomes ready only then.
        push(runs, entries, task.start, task.stamp, len(queues) + row)
    else:
        _enqueue(tasks, clocks, queues, runs, entries, task.queue, row, free)
