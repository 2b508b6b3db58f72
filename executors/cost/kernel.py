"""The simulator's engine: LogGPS on many cores and lanes, event by event.

A receive that is posted before its message arrives needs no event at all: the
arrival compares itself with the time and stamp of the posting.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.event_queue import (
    Records,
    compiled,
    compiled_inline,
    earliest,
    pop,
    push,
)
from collplan.executors.cost.occupancy import IS_LONG, charge_arrival, charge_local, charge_send
from collplan.executors.cost.parameters import CONTINUATION, HANDSHAKE, L, o
from collplan.executors.cost.queues import advance, busier, call, enqueue, free_at

_SEND, _RECV = 0, 1
_STAMP, _DONE = 0, 1
HAS_ON_START, ARRIVED, QUEUED, ASKING = 1, 2, 16, 32
"""Bits of a task's state: a successor waits for its start; its message is here; its posting has
an event; it has asked its receiver whether it may send."""

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
    places: Ints,
    links: Floats,
    costs: Floats,
    connections: Records,
    adapters: Records,
) -> int:
    """Simulate until no event is left and return how many tasks are done.

    Event ids: ``0 <= id < n_queues`` is a queue's first task, ``n_queues +
    row`` a task that becomes ready (or a receive that is posted) later,
    ``n_queues + n_tasks + clock`` the line of a lane, and ``-1 - row`` the
    arrival of the message that send `row` sent.
    """
    n_queues, n_tasks = len(queues), len(tasks)
    for row in initial:
        _make_ready(tasks, clocks, queues, runs, entries, counters, links, costs, row)
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
                _match(
                    tasks, successors, clocks, queues, runs, entries, counters, links, costs,
                    row, now, True,
                )  # fmt: skip
            else:
                _release(
                    tasks, successors, clocks, queues, runs, entries, counters, links, costs,
                    row, True, False,
                )  # fmt: skip
            continue
        row = -1 - event
        if event >= 0:
            core = queues[event].awaits
            if clocks[core].time > now:
                push(runs, entries, clocks[core].time, stamp, event)
                continue
            row = queues[event].first
            if tasks[row].queue == event:
                _execute(
                    tasks, successors, clocks, queues, runs, entries, counters, places, links,
                    costs, connections, adapters, row, now,
                )  # fmt: skip
                continue
        recv = tasks[row].partner
        queue = tasks[recv].queue
        if event < 0 and (queues[queue].first >= 0 or free_at(clocks, queues, queue) > now):
            enqueue(tasks, clocks, queues, runs, entries, queue, row, now)
            continue
        following = tasks[row].following
        charge_arrival(tasks, clocks, queues, places, links, costs, row, now, event >= 0)
        if event >= 0:
            advance(tasks, clocks, queues, runs, entries, queue, following, now)
        tasks[recv].state |= ARRIVED
        if tasks[recv].pending > 0:
            continue
        posted = tasks[recv].start
        if posted < now or (posted == now and tasks[recv].stamp < stamp):
            _match(
                tasks, successors, clocks, queues, runs, entries, counters, links, costs,
                recv, now, False,
            )  # fmt: skip
        elif not tasks[recv].state & QUEUED:
            tasks[recv].state |= QUEUED
            push(runs, entries, posted, tasks[recv].stamp, n_queues + recv)


@compiled_inline
def _execute(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    places: Ints,
    links: Floats,
    costs: Floats,
    connections: Records,
    adapters: Records,
    row: int,
    now: float,
) -> None:
    """Run a send, a copy, a reduction or a computation: the first of its queue."""
    task = tasks[row]
    queue, following = task.queue, task.following
    if task.start < now:
        task.cause = busier(clocks, queues, queue, now)
    ends = True
    if task.op == _SEND:
        arrives = charge_send(
            tasks, clocks, queues, places, links, costs, connections, adapters, row, now
        )
        if row + 1 < len(tasks) and tasks[row + 1].link == CONTINUATION:
            # The rest of its message goes on, behind what other pairs of ranks have for the lane.
            rest = tasks[row + 1]
            counters[_STAMP] += 1
            rest.stamp = counters[_STAMP]
            rest.pending, rest.start, rest.cause = 0, now, row
            rest.following = following
            if following < 0:
                queues[queue].last = row + 1
            following = row + 1
        advance(tasks, clocks, queues, runs, entries, queue, following, now)
        counters[_STAMP] += 1
        task.stamp = counters[_STAMP]
        push(runs, entries, arrives, task.stamp, -1 - row)
        ends = not _is_rendezvous(tasks, costs, row)
        if not ends:
            task.end = -1.0
    else:
        charge_local(tasks, clocks, queues, places, costs, row, now)
        advance(tasks, clocks, queues, runs, entries, queue, following, now)
    counters[_DONE] += ends
    _release(
        tasks, successors, clocks, queues, runs, entries, counters, links, costs, row, True, ends
    )


@compiled_inline
def _is_rendezvous(tasks: Records, costs: Floats, row: int) -> bool:
    """Tell whether a send ends only when its receive matches."""
    return bool(tasks[row].state & IS_LONG and costs[HANDSHAKE] == 0)


@compiled_inline
def _match(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    links: Floats,
    costs: Floats,
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
    if _is_rendezvous(tasks, costs, recv.partner):
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
        _release(
            tasks, successors, clocks, queues, runs, entries, counters, links, costs,
            first, False, True,
        )  # fmt: skip
    _release(
        tasks, successors, clocks, queues, runs, entries, counters, links, costs, row, starts, True
    )
    if last >= 0:
        _release(
            tasks, successors, clocks, queues, runs, entries, counters, links, costs,
            last, False, True,
        )  # fmt: skip


@compiled_inline
def _release(
    tasks: Records,
    successors: Ints,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    links: Floats,
    costs: Floats,
    row: int,
    starts: bool,
    ends: bool,
) -> None:
    """Tell the successors of `row` that it starts, ends, or both.

    Another rank, of the same node, sees it after the latency of the link between them.
    """
    begin = tasks[row - 1].successors if row > 0 else 0
    for i in range(begin, tasks[row].successors):
        successor = tasks[successors[i] >> 3]
        if successors[i] & 1:
            if not starts:
                continue
            time = tasks[row].start
        else:
            if not ends:
                continue
            time = tasks[row].end
        link = successors[i] >> 1 & 3
        if link > 0:
            time += links[link - 1, L]
        if time >= successor.start:
            successor.start = time
            successor.cause = row
        successor.pending -= 1
        if successor.pending == 0:
            _make_ready(
                tasks, clocks, queues, runs, entries, counters, links, costs, successors[i] >> 3
            )


@compiled_inline
def _make_ready(
    tasks: Records,
    clocks: Records,
    queues: Records,
    runs: Records,
    entries: Records,
    counters: Counters,
    links: Floats,
    costs: Floats,
    row: int,
) -> None:
    """Stamp a task whose predecessors are done, and queue it; a receive is posted."""
    counters[_STAMP] += 1
    task = tasks[row]
    task.stamp = counters[_STAMP]
    if task.op == _RECV:
        core = clocks[queues[task.queue].awaits]
        if task.start < core.time:
            task.start = core.time
            task.cause = core.holder
        if task.state & (ARRIVED | HAS_ON_START):
            task.state |= QUEUED
            push(runs, entries, task.start, task.stamp, len(queues) + row)
        if tasks[task.partner].state & ASKING:
            _allow(tasks, queues, runs, entries, links, task.partner)
        return
    if task.state & IS_LONG and costs[HANDSHAKE] > 0:
        # The request goes out; the bytes when the receive is posted and has answered.
        task.state |= ASKING
        if tasks[task.partner].pending == 0 and tasks[task.partner].stamp > 0:
            _allow(tasks, queues, runs, entries, links, row)
        return
    free = free_at(clocks, queues, task.queue)
    if task.start > free:
        # A predecessor on another core ends later: the task becomes ready only then.
        push(runs, entries, task.start, task.stamp, len(queues) + row)
    else:
        enqueue(tasks, clocks, queues, runs, entries, task.queue, row, free)


@compiled
def _allow(
    tasks: Records, queues: Records, runs: Records, entries: Records, links: Floats, row: int
) -> None:
    """Let send `row` become ready when its receiver's answer is there."""
    send = tasks[row]
    recv = tasks[send.partner]
    delay = links[send.link, o] + links[send.link, L]
    # Codes below -1 are no holders here: with handshakes no send holds clocks until it matches.
    send.cause = -2 - send.cause
    if recv.start > send.start + delay:
        send.cause = -2 - send.partner
    send.start = max(send.start + delay, recv.start) + delay
    push(runs, entries, send.start, send.stamp, len(queues) + row)
