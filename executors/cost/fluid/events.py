"""Binary heap of events by time; messages store their positions, so that events can be moved."""

from __future__ import annotations

from collplan.executors.cost.fluid.tables import EVENTS, FlowTables
from collplan.executors.cost.tables import Records, inlined, inner


@inlined
def add(traffic: FlowTables, row: int, time: float) -> None:
    """Insert the event of a message."""
    size = traffic.counters[EVENTS]
    traffic.counters[EVENTS] = size + 1
    settle(traffic.messages, traffic.events, size + 1, size, row, time)


@inlined
def move(traffic: FlowTables, row: int, time: float) -> None:
    """Change the time of the event of a message."""
    place = traffic.messages[row].slot
    settle(traffic.messages, traffic.events, traffic.counters[EVENTS], place, row, time)


@inlined
def take(traffic: FlowTables) -> int:
    """Remove the earliest event, and return its message."""
    row = traffic.events[0].row
    size = traffic.counters[EVENTS] - 1
    traffic.counters[EVENTS] = size
    if size > 0:
        last = traffic.events[size]
        settle(traffic.messages, traffic.events, size, 0, last.row, last.time)
    return int(row)


@inner
def settle(
    messages: Records, events: Records, size: int, place: int, row: int, time: float
) -> None:
    """Insert an event into the heap of `size` events, starting at the free position `place`."""
    while place > 0:
        above = (place - 1) >> 1
        if events[above].time <= time:
            break
        _put(messages, events, place, events[above].row, events[above].time)
        place = above
    while True:
        child = 2 * place + 1
        if child + 1 < size and events[child + 1].time < events[child].time:
            child += 1
        if child >= size or events[child].time >= time:
            break
        _put(messages, events, place, events[child].row, events[child].time)
        place = child
    _put(messages, events, place, row, time)


@inner
def _put(messages: Records, events: Records, place: int, row: int, time: float) -> None:
    event = events[place]
    event.row = row
    event.time = time
    messages[row].slot = place
