"""Delivery: schedules for chunks that have one destination each, as in a scatter or an alltoall.

The ways of chunks are given (see `routing`). The search simulates time. Whenever all links of a hop
are free, the hop carries the waiting chunk that has the most hops before it.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.packing.dissemination import IDLE, WAITS, Hops, TimedMessages
from collplan.planner.packing.heap import pop, push


def deliver(hops: Hops, begin: Ints, way: Ints) -> tuple[TimedMessages, float]:
    """Return messages that bring every chunk over its way.

    Parameters
    ----------
    hops : Hops
    begin, way : ndarray of int64
        Hops of the way of every chunk in CSR form.

    Returns
    -------
    messages : TimedMessages
    float
        Time at which the last message arrives, in ns.
    """
    total, longest = len(way), int(csr.lengths_of(begin).max(initial=0))
    messages = TimedMessages(
        np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64), np.zeros(total)
    )
    size = total + 2 * len(hops.source) + 1
    events = np.zeros(size), np.zeros(size, dtype=np.int64)
    waiting = (
        np.full((len(hops.source), longest + 1), -1, dtype=np.int64),
        np.full(len(begin) - 1, -1, dtype=np.int64),
    )
    end = _run(hops, begin, way, waiting, messages, events)
    return messages, float(end)


@compiled
def _run(
    hops: Hops,
    begin: Ints,
    way: Ints,
    waiting: tuple[Ints, Ints],
    messages: TimedMessages,
    events: tuple[Floats, Ints],
) -> float:
    """Write the messages, and return the time at which the last one arrives.

    `waiting` has the first chunk that waits for each hop, for every number of hops that it has
    before it, and the chunk that follows after each chunk.
    """
    times, items = events
    n_hops = len(hops.source)
    free, place = np.zeros(len(hops.busy_ns)), np.zeros(len(begin), dtype=np.int64)
    status = np.zeros(n_hops, dtype=np.int8)
    size, n_sent, now = 0, 0, 0.0
    for chunk in range(len(begin) - 2, -1, -1):
        place[chunk] = begin[chunk]
        if begin[chunk] < begin[chunk + 1]:
            _wait(waiting, way[begin[chunk]], begin[chunk + 1] - begin[chunk], chunk)
    for hop in range(n_hops):
        status[hop] = WAITS
        size = push(times, items, size, 0.0, hop)
    while size > 0:
        now = times[0]
        item = items[0]
        size = pop(times, items, size)
        if item >= n_hops:
            chunk = messages.chunk[item - n_hops]
            left = begin[chunk + 1] - place[chunk]
            if left > 0:
                hop = way[place[chunk]]
                _wait(waiting, hop, left, chunk)
                if status[hop] == IDLE:
                    status[hop] = WAITS
                    size = push(times, items, size, now, hop)
            continue
        start = now
        for i in range(hops.route_begin[item], hops.route_begin[item + 1]):
            start = max(start, free[hops.route[i]])
        if start > now * (1 + 1e-12):
            size = push(times, items, size, start, item)
            continue
        chunk = _take_farthest(waiting, item)
        if chunk < 0:
            status[item] = IDLE
            continue
        place[chunk] += 1
        messages.hop[n_sent] = item
        messages.chunk[n_sent] = chunk
        messages.start_ns[n_sent] = now
        size = push(times, items, size, now + hops.flight_ns[item], n_hops + n_sent)
        n_sent += 1
        for i in range(hops.route_begin[item], hops.route_begin[item + 1]):
            free[hops.route[i]] = now + hops.busy_ns[hops.route[i]]
        size = push(times, items, size, now + hops.cycle_ns[item], item)
    return now


@inner
def _wait(waiting: tuple[Ints, Ints], hop: int, left: int, chunk: int) -> None:
    """Add a chunk with `left` hops before it to the chunks that wait for a hop."""
    first, after = waiting
    after[chunk] = first[hop, left]
    first[hop, left] = chunk


@inner
def _take_farthest(waiting: tuple[Ints, Ints], hop: int) -> int:
    """Remove a chunk with the most hops before it, and return it; -1 if none waits for the hop."""
    first, after = waiting
    for left in range(first.shape[1] - 1, 0, -1):
        chunk = first[hop, left]
        if chunk >= 0:
            first[hop, left] = after[chunk]
            return int(chunk)
    return -1
