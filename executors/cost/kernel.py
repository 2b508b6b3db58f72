"""The event loop of the simulator, which applies LogGPS to many cores and lanes.

A receive that is posted before its message arrives needs no event: the arrival is compared
with the time and the stamp of the posting.
"""

from __future__ import annotations

from typing import Any

from collplan.executors.cost.event_queue import earliest, pop, push
from collplan.executors.cost.flows import begin_flow, has_come, keep_matched, keep_send, next_flow
from collplan.executors.cost.occupancy import (
    IS_CONTINUED,
    IS_LONG,
    charge_arrival,
    charge_local,
    charge_send,
)
from collplan.executors.cost.parameters import NETWORK
from collplan.executors.cost.prefetching import N_RECENT, prefetch
from collplan.executors.cost.queues import advance, blame, enqueue, free_at, last_holder, leave_line
from collplan.executors.cost.tables import ENDED, POSTED, STARTED, Simulation, inlined, inner
from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compile_with

_SEND, _RECV = 0, 1
_DONE, _SENT, _STAMP, _EARLIER = 0, 1, 2, 3
"""Counters: tasks that are done, sends that began, the largest stamp, and the largest stamp of
earlier times."""
HAS_ON_START, ARRIVED, QUEUED, ASKING = 1, 2, 16, 32
"""Bits of a task's state: a successor waits for its start; its message has arrived; there is an
event for its posting; its request to send has left."""


@compile_with(_nrt=False)
def run(sim: Simulation, initial: Ints, flows: Any) -> int:
    """Simulate until no event is left, and return the number of tasks that are done.

    Parameters
    ----------
    sim : Simulation
    initial : ndarray of int32
        Tasks without predecessors.
    flows : Flows or None
        Messages that share the links of a topology; for None, their code is not compiled.

    Notes
    -----
    Event ids are ``0 <= id < n_queues`` for a queue's first task, ``n_queues + row`` for a
    task that becomes ready (or a receive that is posted) later, ``n_queues + n_tasks + clock``
    for the line of a lane, ``n_queues + n_tasks + n_clocks + row`` for the match of send `row`,
    and ``-1 - row`` for the arrival of its message.
    """
    tasks, clocks, queues = sim.tasks, sim.clocks, sim.queues
    n_queues, n_tasks = len(queues), len(tasks)
    n_others = n_queues + n_tasks + len(clocks)
    instant = 0.0
    for row in initial:
        _make_ready(sim, row)
    while True:
        place = earliest(sim.runs)
        if flows is not None:
            flow = next_flow(sim.runs, flows, place)
            if flow >= 0:
                _end_flow(sim, flows, flow)
                continue
        if place < 0:
            return int(sim.counters[_DONE])
        now = sim.runs[place].head_time
        stamp = sim.runs[place].head_stamp
        if now > instant:
            instant = now
            sim.counters[_EARLIER] = sim.counters[_STAMP]
        event = pop(sim.runs, sim.entries, place)
        if event >= n_others:
            _learn_of_match(sim, event - n_others, now, flows)
            continue
        if event >= n_queues + n_tasks:
            event = leave_line(sim, event - n_queues - n_tasks, now, stamp)
            if event < 0:
                continue
        elif event >= n_queues:
            _begin_later(sim, event - n_queues, (now, stamp), flows)
            continue
        row = -1 - event
        if event >= 0:
            core = queues[event].awaits
            if clocks[core].time > now:
                push(sim.runs, sim.entries, clocks[core].time, stamp, event)
                continue
            row = queues[event].first
            if tasks[row].queue == event:
                _execute(sim, row, now, flows)
                continue
        _arrive(sim, row, (now, stamp), event >= 0, flows)


@inlined
def _begin_later(sim: Simulation, row: int, event: tuple[float, int], flows: Any) -> None:
    """Queue a task whose predecessors ended after its core became free, or post a receive."""
    task = sim.tasks[row]
    if task.op != _RECV:
        task.stamp = _next_stamp(sim, task.queue)
        enqueue(sim, task.queue, row, event[0])
    elif task.state & ARRIVED:
        _match(sim, row, event, True, flows)
    else:
        _release(sim, row, True, False)


@inlined
def _arrive(
    sim: Simulation, row: int, event: tuple[float, int], has_waited: bool, flows: Any
) -> None:
    """Receive the message of send `row`, or queue it if its receiver is busy."""
    now, stamp = event
    tasks, queues = sim.tasks, sim.queues
    recv = tasks[row].partner
    queue = tasks[row].far_queue
    if not has_waited and (queues[queue].first >= 0 or free_at(sim.clocks, queues, queue) > now):
        enqueue(sim, queue, row, now)
        return
    following = tasks[row].following
    charge_arrival(sim, row, now, has_waited)
    if has_waited:
        advance(sim, queue, following, now)
    tasks[recv].state |= ARRIVED
    if tasks[recv].pending > 0:
        return
    posted = tasks[recv].start
    if posted < now or (posted == now and tasks[recv].stamp < stamp):
        _match(sim, recv, event, False, flows)
    elif not tasks[recv].state & QUEUED:
        tasks[recv].state |= QUEUED
        push(sim.runs, sim.entries, posted, tasks[recv].stamp, len(queues) + recv)


@inlined
def _execute(sim: Simulation, row: int, now: float, flows: Any) -> None:
    """Execute the first task of a queue: a send, a copy, a reduction or a computation."""
    tasks = sim.tasks
    task = tasks[row]
    queue, following = task.queue, task.following
    if task.start < now:
        blame(task, last_holder(sim.clocks, sim.queues, queue, now))
    ends = True
    if task.op == _SEND:
        arrives = charge_send(sim, row, now)
        if flows is not None:
            arrives = begin_flow(sim, flows, row, arrives)
        if task.state & IS_CONTINUED:
            # The next piece of the message follows after pieces of other pairs of ranks.
            rest = tasks[row + 1]
            rest.stamp = _next_stamp(sim, queue)
            rest.pending, rest.start = 0, now
            rest.following = following
            if following < 0:
                sim.queues[queue].last = row + 1
            following = row + 1
        advance(sim, queue, following, now)
        task.stamp = _next_stamp(sim, queue)
        _prefetch_ahead(sim, row)
        push(sim.runs, sim.entries, arrives, task.stamp, -1 - row)
        ends = not _is_rendezvous(sim, row)
        if flows is not None:
            ends &= not keep_send(sim, flows, row)
        if not ends:
            task.end = -1.0
    else:
        charge_local(sim, row, now)
        advance(sim, queue, following, now)
    sim.counters[_DONE] += ends
    _release(sim, row, True, ends)


@inlined
def _prefetch_ahead(sim: Simulation, row: int) -> None:
    """Prefetch rows that the arrivals of this send and of an earlier one will need."""
    tasks, queues = sim.tasks, sim.queues
    prefetch(tasks, tasks[row].partner)
    prefetch(queues, tasks[row].far_queue)
    sim.counters[_SENT] += 1
    turn = sim.counters[_SENT] % N_RECENT
    earlier = tasks[sim.recent[turn]]
    sim.recent[turn] = row
    if earlier.op != _SEND:
        return  # the ring buffer is not full yet
    recv = tasks[earlier.partner]
    prefetch(sim.clocks, queues[earlier.far_queue].core)
    prefetch(sim.clocks, queues[earlier.far_queue].lane)
    if recv.successors < recv.end_successors:
        prefetch(tasks, sim.successors[recv.successors] >> 3)


@inlined
def _is_rendezvous(sim: Simulation, row: int) -> bool:
    """Return whether a send ends only when its receive matches."""
    return bool(sim.tasks[row].state & IS_LONG and sim.costs[0].handshake == 0)


@inlined
def _match(sim: Simulation, row: int, event: tuple[float, int], starts: bool, flows: Any) -> None:
    """Complete receive `row`, and its send if the send waited for the match.

    If the message still flows, the end of the flow completes both. If stamps are counted
    per node, a send of another node is completed by an event of its own, after all events with
    the time and stamp of this one.
    """
    tasks, queues = sim.tasks, sim.queues
    now, stamp = event
    recv = tasks[row]
    recv.end = max(recv.end, now)
    ends = True
    if flows is not None:
        ends = has_come(sim, flows, recv.partner)
    sim.counters[_DONE] += ends
    send = tasks[recv.partner]
    waits = _is_rendezvous(sim, recv.partner)
    if waits and sim.is_by_node and send.link >= NETWORK:
        event_id = len(queues) + len(tasks) + len(sim.clocks) + recv.partner
        push(sim.runs, sim.entries, now, stamp + 1, event_id)
        waits = False
    if waits:
        _free_sender(sim, recv.partner, now)
        if flows is not None:
            waits = not keep_matched(flows, recv.partner, now)
    if waits:
        _end_send(sim, recv.partner, now)
    sends_first = queues[send.queue].rank <= queues[recv.queue].rank
    # The loop has a single call, because numba copies an inlined function's code to every call.
    for turn in range(2):
        of_send = (turn == 0) == sends_first
        if waits or not of_send:
            ending = recv.partner if of_send else row
            _release(sim, ending, starts and not of_send, ends or of_send)


@inlined
def _end_send(sim: Simulation, row: int, now: float) -> None:
    """Complete a send that waited for its match."""
    sim.counters[_DONE] += 1
    sim.tasks[row].end = now


@inlined
def _free_sender(sim: Simulation, row: int, now: float) -> None:
    """Free the core and lane that a send held until its match."""
    clocks, send = sim.clocks, sim.tasks[row]
    for clock in (sim.queues[send.queue].core, sim.queues[send.queue].lane):
        if clocks[clock].time < now:
            clocks[clock].time = now
            clocks[clock].holder = -2 - row


@inlined
def _learn_of_match(sim: Simulation, row: int, now: float, flows: Any) -> None:
    """Complete send `row`, whose node learns now that the receive on another node has matched."""
    _free_sender(sim, row, now)
    if flows is not None and keep_matched(flows, row, now):
        return
    _end_send(sim, row, now)
    _release(sim, row, False, True)


@inlined
def _end_flow(sim: Simulation, flows: Any, flow: int) -> None:
    """Complete the send of a flow that ended, if the send waits, and its receive, if it matched."""
    row = flows.states[flow].last
    sim.counters[_EARLIER] = sim.counters[_STAMP]
    for of_send in (True, False):
        ending = row if of_send else sim.tasks[row].partner
        if of_send and flows.states[flow].held < 0:
            continue
        if of_send:
            sim.tasks[row].end = max(flows.states[flow].held, flows.states[flow].ends)
        elif flows.states[flow].has_matched == 0 or not has_come(sim, flows, row):
            continue
        sim.counters[_DONE] += 1
        _release(sim, ending, False, True)


@inlined
def _release(sim: Simulation, row: int, starts: bool, ends: bool) -> None:
    """Notify the successors of `row` that it starts, ends, or both.

    A successor on another rank of the node is notified after the latency of their link.
    """
    tasks, successors = sim.tasks, sim.successors
    for i in range(tasks[row].successors, tasks[row].end_successors):
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
            time += sim.links[link - 1].L
        if time >= successor.start:
            successor.start = time
            successor.cause = row
            successor.reason = STARTED if successors[i] & 1 else ENDED
        successor.pending -= 1
        if successor.pending == 0:
            _make_ready(sim, successors[i] >> 3)


@inlined
def _next_stamp(sim: Simulation, queue: int) -> int:
    """Return the next stamp of the node of a queue, or of all nodes.

    It exceeds all stamps of earlier times on any node. Stamps are even; the odd number after a
    stamp is the place of what the event with this stamp causes on other nodes.
    """
    node = sim.queues[queue].node if sim.is_by_node else 0
    stamp = max(sim.stamps[node], sim.counters[_EARLIER]) + 2
    sim.stamps[node] = stamp
    sim.counters[_STAMP] = max(sim.counters[_STAMP], stamp)
    return int(stamp)


@inlined
def _make_ready(sim: Simulation, row: int) -> None:
    """Stamp a task whose predecessors are done, and queue it, or post it if it is a receive."""
    tasks, clocks, queues = sim.tasks, sim.clocks, sim.queues
    task = tasks[row]
    task.stamp = _next_stamp(sim, task.queue)
    if task.op == _RECV:
        core = clocks[queues[task.queue].awaits]
        if task.start < core.time:
            task.start = core.time
            blame(task, core.holder)
        if task.state & (ARRIVED | HAS_ON_START):
            task.state |= QUEUED
            push(sim.runs, sim.entries, task.start, task.stamp, len(queues) + row)
        if sim.costs[0].handshake > 0 and tasks[task.partner].state & ASKING:
            _allow(sim, task.partner)
        return
    if task.state & IS_LONG and sim.costs[0].handshake > 0:
        # The request leaves now, and the data when the receive is posted and has answered.
        task.state |= ASKING
        if tasks[task.partner].pending == 0 and tasks[task.partner].stamp > 0:
            _allow(sim, row)
        return
    free = free_at(clocks, queues, task.queue)
    if task.start > free:
        # A predecessor on another core ends later, and the task becomes ready only then.
        push(sim.runs, sim.entries, task.start, task.stamp, len(queues) + row)
    else:
        enqueue(sim, task.queue, row, free)


@inner
def _allow(sim: Simulation, row: int) -> None:
    """Make send `row` ready when the answer of its receiver arrives."""
    send = sim.tasks[row]
    recv = sim.tasks[send.partner]
    delay = sim.links[send.link].o + sim.links[send.link].L
    if len(sim.request_delays) > 0:
        delay += sim.request_delays[row]
    if recv.start > send.start + delay:
        send.cause, send.reason = send.partner, POSTED
    send.start = max(send.start + delay, recv.start) + delay
    push(sim.runs, sim.entries, send.start, send.stamp, len(sim.queues) + row)
