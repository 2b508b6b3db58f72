"""Occupancy of resources by operations: cores, lanes, and resources that cores share.

An operation runs when its core and its lane are free. Resources that its core shares with other
cores may delay it further. On an emulated machine with fewer processors than cores, the operation
waits for a processor; the memory of its node may prolong it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collplan.executors.cost.connections import fetch
from collplan.executors.cost.parameters import CONTINUATION, NETWORK
from collplan.executors.cost.queues import blame, hold, last_holder
from collplan.executors.cost.tables import Records, Simulation, inlined, inner
from collplan.planner.arrays.rounding import NEARLY_ONE

_COPY, _REDUCE = 2, 3
IS_STRIDED, IS_UNCACHED, IS_LONG, IS_CONTINUED = 4, 8, 64, 128
"""Bits of a task's state: its data is strided; its buffers exceed the cache; it is a send above
the eager limit; it is a piece of a message that another piece follows."""
NOBODY = -(1 << 31)
"""Value used instead of the previous holder of a processor if the task did not wait for one."""


@inlined
def occupy(
    sim: Simulation, queue: Any, row: int, now: float, works_ns: float, moves_ns: float
) -> tuple[float, float, float, int]:
    """Hold a core for the work of a task, while the memory of its node moves data.

    Parameters
    ----------
    sim : Simulation
    queue : record of QUEUE
    row : int
        Row of the task.
    now : float
        Time in ns.
    works_ns, moves_ns : float
        Durations of the work and of the transfers in memory, in ns.

    Returns
    -------
    begin, turned, end : float
        Times in ns when the core takes the task, has switched to its rank, and is done.
    before : int
        Task that held the processor for which this one had to wait; `NOBODY` if it did not wait.
    """
    clocks = sim.clocks
    begin, before = now, NOBODY
    processor = sim.layout.processor
    n_processors = len(clocks) - 1 - processor
    if n_processors > 0:
        for i in range(processor + 1, len(clocks) - 1):
            if clocks[i].time < clocks[processor].time:
                processor = i
        if clocks[processor].time > now:
            begin, before = clocks[processor].time, clocks[processor].holder
    turns, works = 0.0, works_ns
    if sim.costs[0].switch > 0 and max(works_ns, moves_ns) > 0:
        turns = _turn(clocks, sim.costs[0].switch, queue.core, queue.rank)
        works += turns
    if moves_ns > 0:
        memory = sim.layout.memory + queue.node
        free = max(begin + turns, clocks[memory].time)
        works = max(works, hold(clocks, memory, row, free, moves_ns) - begin)
    if n_processors > 0:
        hold(clocks, processor, row, begin, works)
    return begin, begin + turns, hold(clocks, queue.core, row, begin, works), before


@inner
def _turn(clocks: Records, switch: float, core: int, rank: int) -> float:
    """Switch a core to a rank, and return the duration, which is 0 for its first rank."""
    before = clocks[core].rank
    clocks[core].rank = rank
    return 0.0 if before < 0 or before == rank else float(switch)


@inlined
def _bucket(sim: Simulation, queue: Any, link: int, now: float) -> float:
    """Return when a free lane begins a message; this is before `now` if the lane passes bursts."""
    burst = sim.costs[0].burst
    if burst == 0 or link < NETWORK:
        return now
    return float(max(sim.clocks[queue.lane].time, now - burst * queue.pace))


@inlined
def _gap(send: Any, link: Any) -> float:
    """Return the gap g of a message, which follows its last piece."""
    return 0.0 if send.state & IS_CONTINUED else float(link.g)


@inlined
def _packets(costs: Any, send: Any) -> float:
    """Return the core time of all packets of a message but the first, whose cost is part of o."""
    if costs.packet == 0 or send.link < NETWORK:
        return 0.0
    if send.link == CONTINUATION:
        return float(math.ceil((send.work - 1) / costs.packet_bytes) * costs.packet)
    return float((math.ceil(max(send.work, 1.0) / costs.packet_bytes) - 1) * costs.packet)


@inlined
def charge_send(sim: Simulation, row: int, now: float) -> float:
    """Occupy the resources of a sender; return the time when its message arrives.

    The `following` of the task becomes the task for which the message waited before it left,
    which is the send itself if it did not wait.
    """
    tasks, clocks, queues, costs = sim.tasks, sim.clocks, sim.queues, sim.costs[0]
    send = tasks[row]
    queue = queues[send.queue]
    link = sim.links[send.link]
    more = max(send.work - 1.0, 0.0)
    works = link.o + more * link.O + _packets(costs, send)
    if send.state & IS_STRIDED:
        works += send.work * costs.strided
    begin, turned, end, before = occupy(sim, queue, row, now, works, 0.0)
    reads = waits = 0.0
    if len(sim.connections) > 0 and send.link == NETWORK:
        adapter = sim.adapters[queue.lane - sim.layout.lane_out]
        peer = queues[send.far_queue].rank
        reads, waits = fetch(
            sim.connections, adapter, row, peer, turned, costs.miss, costs.reconnect
        )
    elif len(sim.connections) > 0 and send.link == CONTINUATION:
        # Further pieces must not overtake the first one, which may have waited for its queue pair.
        waits = max(0.0, sim.connections[sim.connections[row].slot].ready - turned)
    passes = _gap(send, link) + more * (link.G * queue.pace)
    leaves = _bucket(sim, queue, send.link, turned)
    if waits > 0:
        # The next message must not overtake this one, so a burst does not shorten this wait.
        leaves = max(leaves, turned - passes)
    sent = hold(clocks, queue.lane, row, leaves, reads / costs.at_once + passes)
    send.start = begin
    if before != NOBODY:
        blame(send, before)
    send.following = row
    send.end = end
    if send.link == CONTINUATION or (costs.handshake > 0 and send.state & IS_LONG):
        send.end = max(end, sent)
    return float(turned + waits + link.o + link.L)


@inlined
def charge_arrival(sim: Simulation, row: int, now: float, has_waited: bool) -> None:
    """Occupy the resources of the receiver of send `row`, whose lane is free.

    The message arrives when the resource for which it waited last takes it.
    """
    clocks, queues, costs = sim.clocks, sim.queues, sim.costs[0]
    send = sim.tasks[row]
    recv = sim.tasks[send.partner]
    queue = queues[send.far_queue]
    link = sim.links[send.link]
    if has_waited:
        send.following = last_holder(clocks, queues, send.far_queue, now)
    more = max(send.work - 1.0, 0.0)
    works = link.o + more * link.O + _packets(costs, send)
    moves = 0.0
    if send.link < NETWORK:
        moves = send.work * costs.memory
    if recv.state & IS_STRIDED:
        works += send.work * costs.strided
    gap, passes = _gap(send, link), more * (link.G * queue.pace)
    begins = _bucket(sim, queue, send.link, now)
    taken = hold(clocks, queue.lane, send.partner, begins, gap + passes)
    recv.arrival = now
    if link.offload > 0:
        core = clocks[queue.core]
        begins, holder = max(now, core.time), core.holder
        begin, _, end, before = occupy(sim, queue, send.partner, begins, works, moves)
        recv.end = max(now, taken - gap) + link.last
        if end > recv.end:
            recv.end = end
            recv.arrival = begin
            if before != NOBODY:
                send.following = before
            elif begin > now:
                send.following = holder
    else:
        works = max(works, link.o + passes)
        recv.arrival, _, recv.end, before = occupy(sim, queue, send.partner, now, works, moves)
        if before != NOBODY:
            send.following = before


@inlined
def charge_local(sim: Simulation, row: int, now: float) -> None:
    """Occupy a core with a copy, a reduction or a computation."""
    costs = sim.costs[0]
    task = sim.tasks[row]
    works, moves = task.work, 0.0
    if task.op <= _REDUCE:
        per_byte = costs.copy if task.op == _COPY else costs.reduce
        if task.state & IS_STRIDED:
            per_byte += costs.strided
        if task.state & IS_UNCACHED:
            per_byte += costs.uncached
        works = np.ceil(task.work * per_byte * NEARLY_ONE)
        moves = task.work * costs.memory
    queue = sim.queues[task.queue]
    task.start, _, task.end, before = occupy(sim, queue, row, now, works, moves)
    if before != NOBODY:
        blame(task, before)
