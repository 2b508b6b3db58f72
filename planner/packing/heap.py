"""Binary heap of events: times and items in two arrays, the earliest event first."""

from __future__ import annotations

from collplan.planner.arrays import Floats, Ints
from collplan.planner.machine_code.kernel import inner


@inner
def push(times: Floats, items: Ints, size: int, time: float, item: int) -> int:
    """Insert an event into the heap of `size` events, and return the new size."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if times[above] <= time:
            break
        times[place], items[place] = times[above], items[above]
        place = above
    times[place], items[place] = time, item
    return size + 1


@inner
def pop(times: Floats, items: Ints, size: int) -> int:
    """Remove the earliest event from the heap of `size` events, and return the new size."""
    size -= 1
    time, item = times[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if child >= size or times[child] >= time:
            break
        times[place], items[place] = times[child], items[child]
        place = child
    times[place], items[place] = time, item
    return size
