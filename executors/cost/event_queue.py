"""The event queue of the simulator: sorted runs for regular schedules, and a heap for the rest.

Events are popped in the order of (time, stamp); stamps break ties in the order of readiness.
Events of different nodes may have equal times and stamps. Their order is not specified, but it is
the same whenever a plan is simulated. The heap orders them by their ids, because an irregular
order would last for the whole simulation and make memory accesses slow. The events of a collective
form a few streams that are already sorted: for example, sends that end one overhead later and
messages that arrive one latency later. An event is therefore appended in O(1) to the first run
whose last event it does not precede. If there is no such run, it is inserted into a heap.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.cost.tables import ENTRY, RUN, Records, inlined, inner

N_RUNS: Final = 6
"""Number of sorted runs."""
_ARITY: Final = 4
"""Number of children per node of the heap, which therefore has fewer levels than a binary heap."""
_LONGEST_RUN: Final = 1 << 16
_EVENT_BITS: Final = 32
_FIRST_EVENT: Final = 1 << 31
"""Number that makes all ids of events, which are 32-bit integers, positive."""


def make_event_queue(n_waiting: int, n_events: int) -> tuple[Records, Records]:
    """Return an empty queue.

    Parameters
    ----------
    n_waiting : int
        Number of events expected at a time; longer runs overflow into the heap.
    n_events : int
        Largest number of events ever in the queue, which is the capacity of the heap. The
        operating system provides only the pages that are used.

    Returns
    -------
    runs : ndarray of RUN, shape (N_RUNS + 1,)
        Ring buffers, then the heap; `head_time` is infinite if a row is empty.
    entries : ndarray of ENTRY
        Entries of all runs, one after another, then those of the heap.
    """
    capacity = 1 << max(4, int(min(2 * n_waiting, _LONGEST_RUN) - 1).bit_length())
    runs = np.zeros(N_RUNS + 1, dtype=RUN)
    runs["head_time"] = np.inf
    runs["capacity"] = capacity
    return runs, np.empty(N_RUNS * capacity + n_events + _ARITY, dtype=ENTRY)


@inlined
def push(runs: Records, entries: Records, time: float, stamp: int, event: int) -> None:
    """Insert an event."""
    for i in range(len(runs) - 1):
        run = runs[i]
        if run.length == 0:
            run.head_time = time
            run.head_stamp = stamp
        elif (
            run.length == run.capacity
            or run.tail_time > time
            or (run.tail_time == time and run.tail_stamp > stamp)
        ):
            continue
        entry = entries[i * run.capacity + ((run.first + run.length) & (run.capacity - 1))]
        entry.time = time
        entry.key = _key(stamp, event)
        run.tail_time = time
        run.tail_stamp = stamp
        run.length += 1
        return
    _sift_up(runs, entries, time, stamp, event)


@inlined
def earliest(runs: Records) -> int:
    """Return the run with the earliest event, or -1 if the queue is empty."""
    best = -1
    time, stamp = np.inf, 0
    for i in range(len(runs)):
        run = runs[i]
        if run.head_time < time or (
            run.head_time == time and run.head_stamp < stamp and run.length > 0
        ):
            best, time, stamp = i, run.head_time, run.head_stamp
    return best


@inlined
def pop(runs: Records, entries: Records, place: int) -> int:
    """Remove the first event of a run and return its id."""
    if place == len(runs) - 1:
        return int(_sift_down(runs, entries))
    run = runs[place]
    begin = place * run.capacity
    event: int = _event(entries[begin + run.first].key)
    run.first = (run.first + 1) & (run.capacity - 1)
    run.length -= 1
    if run.length == 0:
        run.head_time = np.inf
    else:
        head = entries[begin + run.first]
        run.head_time = head.time
        run.head_stamp = head.key >> _EVENT_BITS
    return event


@inlined
def _key(stamp: int, event: int) -> int:
    """Return the key of an entry, which orders by stamp and then by event."""
    return int((np.int64(stamp) << _EVENT_BITS) + (event + _FIRST_EVENT))


@inlined
def _event(key: int) -> int:
    """Return the event of a key."""
    return int((key & ((1 << _EVENT_BITS) - 1)) - _FIRST_EVENT)


@inner
def _precedes(time: float, key: int, other: Any) -> bool:
    return bool(time < other.time or (time == other.time and key < other.key))


@inner
def _put(entries: Records, i: int, time: float, key: int) -> None:
    entry = entries[i]
    entry.time = time
    entry.key = key


@inner
def _sift_up(runs: Records, entries: Records, time: float, stamp: int, event: int) -> None:
    heap = runs[-1]
    begin = (len(runs) - 1) * heap.capacity
    heap.length += 1
    _rise(entries, begin, heap.length - 1, time, _key(stamp, event))
    heap.head_time = entries[begin].time
    heap.head_stamp = entries[begin].key >> _EVENT_BITS


@inner
def _sift_down(runs: Records, entries: Records) -> int:
    """Remove the first entry of the heap by moving up the least children down to a leaf.

    The least child is computed without branches, as these would be mispredicted often. The last
    entry then fills the gap at the leaf and rarely has to rise from there.
    """
    heap = runs[-1]
    begin = (len(runs) - 1) * heap.capacity
    first_event: int = _event(entries[begin].key)
    heap.length -= 1
    n = heap.length
    last = entries[begin + n]
    time, key = last.time, last.key
    # Infinite times after the last entry give every node the same number of children.
    for child in range(n, n + _ARITY):
        entries[begin + child].time = np.inf
    i = 0
    while _ARITY * i + 1 < n:
        child = begin + _ARITY * i + 1
        one = child + _is_less(entries, child + 1, child)
        other = child + 2 + _is_less(entries, child + 3, child + 2)
        place = one + (other - one) * _is_less(entries, other, one)
        least = entries[place]
        _put(entries, begin + i, least.time, least.key)
        i = place - begin
    _rise(entries, begin, i, time, key)
    heap.head_time = entries[begin].time if n else np.inf
    heap.head_stamp = entries[begin].key >> _EVENT_BITS
    return first_event


@inlined
def _is_less(entries: Records, one: int, other: int) -> int:
    """Return 1 if an entry precedes another one, else 0."""
    a, b = entries[one], entries[other]
    return int((a.time < b.time) | ((a.time == b.time) & (a.key < b.key)))


@inner
def _rise(entries: Records, begin: int, i: int, time: float, key: int) -> None:
    """Put an entry at index `i` of the heap, or further up if it precedes its parents."""
    while i > 0:
        above = (i - 1) // _ARITY
        parent = entries[begin + above]
        if not _precedes(time, key, parent):
            break
        _put(entries, begin + i, parent.time, parent.key)
        i = above
    _put(entries, begin + i, time, key)
