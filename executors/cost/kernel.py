"""The simulator's engine: LogGPS on many cores and lanes, event by event.

A receive that is posted before its message arrives needs no event at all: the
arrival compares itself with the time and stamp of the posting.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from executors.cost.event_queue import Records, compiled, earliest, pop, push
from executors.cost.waiting import advance, busier, call, enqueue, free_at, hold

_SEND, _RECV = 0, 1
_L, _o, _g, _G, _O = 0, 1, 2, 3, 4
_STAMP, _DONE = 0, 1
HAS_ON_START, RENDEZVOUS, ARRIVED, QUEUED = 1, 2, 4, 8
"""Bits of a task's state: a successor waits for its start; it is a send above the eager limit;
its message is here; its posting has an event."""

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
            event = call(tasks, clocks, queues, runs, entries, lane, now, stamp)
            if event < 0:
                continue
        elif event >= n_queues:
            row = event - n_queues
            if tasks[row].op != _RECV:
                counters[_STAMP] += 1
                tasks[row].stamp = counters[_STAMP]
                enqueue(tasks, clocks, queues, runs, entries, tasks[row].queue, row, now)
            elif tasks[row].state & ARRIVED:
                _match(tasks, successors, clocks, queues, runs, entries, counters, row, now, True)
            else:
                _release(
                    tasks, successors, clocks, queues, runs, entries, counters, row, True, False
                )
            continue
        row = -1 - event
        if event >= 0:
            core = queues[event].core
            if clocks[core].time > now:
                push(runs, entries, clocks[core].time, stamp, event)
                continue
            row = queues[event].first
            if tasks[row].queue == event:
                _execute(
                    tasks, successors, clocks, queues, runs, entries, counters, links, row, now
                )
                continue
        recv = tasks[row].partner
        queue = tasks[recv].queue
        if event < 0 and (queues[queue].first >= 0 or free_at(clocks, queues, queue) > now):
            enqueue(tasks, clocks, queues, runs, entries, queue, row, now)
            continue
        following = tasks[row].following
        _receive(tasks, clocks, queues, links, row, now)
        if event >= 0:
            advance(tasks, clocks, queues, runs, entries, queue, following, now)
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
        task.cause = busier(clocks, queues, queue, now)
    task.start = now
    ends = True
    if task.op == _SEND:
        link = links[task.link]
        more = task.work - 1
        end = hold(clocks, core, row, now, link[_o] + more * link[_O])
        hold(clocks, lane, row, now, link[_g] + more * link[_G])
        advance(tasks, clocks, queues, runs, entries, queue, task.following, now)
        counters[_STAMP] += 1
        task.stamp = counters[_STAMP]
        push(runs, entries, now + link[_o] + link[_L], task.stamp, -1 - row)
        ends = not task.state & RENDEZVOUS
        if ends:
            task.end = end
    else:
        task.end = hold(clocks, core, row, now, task.work)
        advance(tasks, clocks, queues, runs, entries, queue, task.following, now)
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
    send.following = busier(clocks, queues, recv.queue, now) if waited else row
    more = send.work - 1
    held = link[_o] + max(more * link[_O], more * link[_G])
    recv.end = hold(clocks, queues[recv.queue].core, send.partner, now, held)
    hold(clocks, queues[recv.queue].lane, send.partner, now, link[_g] + more * link[_G])


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
    free = free_at(clocks, queues, task.queue)
    if task.start > free:
        # A predecessor on another core ends later: the task becomes ready only then.
        push(runs, entries, task.start, task.stamp, len(queues) + row)
    else:
        enqueue(tasks, clocks, queues, runs, entries, task.queue, row, free)
