"""Max-min fair rates of messages, recomputed only for messages whose rates can change.

A link is full if the messages over it use all of its bandwidth. The highest rate over a full link
is its level. Every message flows at the level of a full link of its route, which is its holder.

When messages begin or end, those links of their routes that are full or have new messages count
as changed. The messages that a changed link holds become free, unless another full link can hold
them; the links of free messages change, too. Progressive filling then computes the rates of free
messages. It raises the rates of all of them equally until a link is full. This link then holds
its free messages, and the other messages share the remaining bandwidth. Messages that are not
free keep their rates. If one of them flows faster over a link than the level at which the link
would become full, it becomes free first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.tables import Records, inlined, inner, table_of
from collplan.planner.arrays import Floats, Ints

MESSAGE: Final = np.dtype(
    [
        ("left", "f8"),  # bytes that have not flowed by the time `since`
        ("since", "f8"),  # time of the last change of its rate
        ("rate", "f8"),  # bytes per unit of time from then on
        ("delay", "f8"),  # latency of its route; its whole duration inside a host
        ("hops", "i4"),  # end of its hops, which begin at the end of the previous row's
        ("slot", "i4"),  # position of its event in the heap
        ("holder", "i4"),  # full link whose level is its rate; -1 while it is free
        ("is_flowing", "i1"),
    ],
    align=True,
)
HOP: Final = np.dtype([("link", "i4"), ("message", "i4"), ("before", "i4"), ("next", "i4")])
"""A link of a message's route; hops of flowing messages over the same link form a list."""
LINK: Final = np.dtype(
    [
        ("bandwidth", "f8"),
        ("left", "f8"),  # bandwidth that is not used by messages that are not free
        ("share", "f8"),  # equal share of that bandwidth per free message
        ("level", "f8"),  # highest rate of its messages while it is full; else infinite
        ("first", "i4"),  # first hop in its list of flowing messages
        ("free", "i4"),  # number of free messages in that list
        ("mark", "i4"),  # last epoch in which it changed
    ],
    align=True,
)
EVENT: Final = np.dtype([("time", "f8"), ("row", "i4")], align=True)
EVENTS, EPOCH, LINKS, FREE = range(4)
"""Counters: events, epochs, links changed in this epoch, free messages."""


class FlowTables(NamedTuple):
    """Tables of one simulation.

    Parameters
    ----------
    messages, hops, links : ndarray of MESSAGE, HOP and LINK
        Messages; the links of their routes, in the order of messages; and all links.
    events : ndarray of EVENT
        Heap by time with one event for each message that is in progress.
    changed : ndarray of int32
        Links whose messages can get other rates in this epoch.
    counters : ndarray of int64, shape (4,)
        Counters at the indices `EVENTS`, `EPOCH`, `LINKS` and `FREE`.
    """

    messages: Records
    hops: Records
    links: Records
    events: Records
    changed: Ints
    counters: Ints


def allocate(n_messages: int, n_hops: int, bandwidth: Floats) -> FlowTables:
    """Return tables of unused links, with room for messages.

    Parameters
    ----------
    n_messages, n_hops : int
        Number of messages, and of links of all their routes.
    bandwidth : ndarray of float64, shape (n_links,)
        Bandwidth of every link, in bytes per unit of time.

    Returns
    -------
    FlowTables
    """
    links = np.zeros(len(bandwidth), dtype=LINK)
    links["bandwidth"] = links["left"] = bandwidth
    links["level"] = np.inf
    links["first"] = -1
    return FlowTables(
        table_of(n_messages, MESSAGE),
        np.empty(n_hops, dtype=HOP),
        links,
        np.empty(n_messages, dtype=EVENT),
        np.empty(len(links), dtype=np.int32),
        np.zeros(4, dtype=np.int64),
    )


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


_EQUAL: Final = 1 + 1e-13
"""Ratio of rates up to which they count as equal in spite of rounding errors."""


@inlined
def change(traffic: FlowTables, number: int) -> None:
    """Record that messages over a link can get other rates in this epoch."""
    link = traffic.links[number]
    if link.mark == traffic.counters[EPOCH]:
        return
    link.mark = traffic.counters[EPOCH]
    traffic.changed[traffic.counters[LINKS]] = number
    traffic.counters[LINKS] += 1


@inlined
def enter(traffic: FlowTables, row: int) -> None:
    """Insert a free message into the lists of all links of its route."""
    hops = traffic.hops
    traffic.messages[row].holder = -1
    traffic.counters[FREE] += 1
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, traffic.messages[row].hops):
        change(traffic, hops[i].link)
        link = traffic.links[hops[i].link]
        hops[i].before = -1
        hops[i].next = link.first
        if link.first >= 0:
            hops[link.first].before = i
        link.first = i
        link.free += 1


@inlined
def leave(traffic: FlowTables, row: int) -> None:
    """Remove a message from the lists of all links of its route."""
    hops = traffic.hops
    rate = traffic.messages[row].rate
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, traffic.messages[row].hops):
        link = traffic.links[hops[i].link]
        if link.level < np.inf:
            change(traffic, hops[i].link)
        before, after = hops[i].before, hops[i].next
        if before >= 0:
            hops[before].next = after
        else:
            link.first = after
        if after >= 0:
            hops[after].before = before
        link.left += rate


@inlined
def share(traffic: FlowTables, now: float) -> None:
    """Update the rates of all messages whose rates can change, from time `now` on."""
    counters, links, changed = traffic.counters, traffic.links, traffic.changed
    level = 0.0
    _release(traffic, 0)
    while counters[FREE] > 0:
        level = max(level, _next_level(traffic))
        n_links = counters[LINKS]
        for i in range(n_links):
            if links[changed[i]].share <= level * _EQUAL:
                _fill(traffic, changed[i], level, now)
        _release(traffic, n_links)


@inner
def _release(traffic: FlowTables, first: int) -> None:
    """Free the messages that changed links from `first` on hold and that no other link can hold."""
    messages, hops, links = traffic.messages, traffic.hops, traffic.links
    i = first
    while i < traffic.counters[LINKS]:
        number = traffic.changed[i]
        i += 1
        if links[number].level == np.inf:
            continue
        links[number].level = np.inf
        hop = links[number].first
        while hop >= 0:
            row = hops[hop].message
            hop = hops[hop].next
            if messages[row].holder == number and not _find_holder(traffic, row):
                _free(traffic, row)


@inlined
def _find_holder(traffic: FlowTables, row: int) -> bool:
    """Find another full link that can hold a message; return whether there is one."""
    hops, links, message = traffic.hops, traffic.links, traffic.messages[row]
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, message.hops):
        if links[hops[i].link].level <= message.rate * _EQUAL:
            message.holder = hops[i].link
            return True
    return False


@inlined
def _free(traffic: FlowTables, row: int) -> None:
    """Free a message and return its bandwidth to the links of its route, which change."""
    hops, links, message = traffic.hops, traffic.links, traffic.messages[row]
    message.holder = -1
    traffic.counters[FREE] += 1
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, message.hops):
        change(traffic, hops[i].link)
        link = links[hops[i].link]
        link.left += message.rate
        link.free += 1


@inlined
def _next_level(traffic: FlowTables) -> float:
    """Return the rate at which the next links become full, and drop links without free messages."""
    links, changed = traffic.links, traffic.changed
    least = np.inf
    n_links = 0
    for i in range(traffic.counters[LINKS]):
        number = changed[i]
        link = links[number]
        if link.free == 0:
            link.mark = 0
            continue
        link.share = link.left / link.free
        least = min(least, link.share)
        changed[n_links] = number
        n_links += 1
    traffic.counters[LINKS] = n_links
    return least


@inlined
def _fill(traffic: FlowTables, number: int, level: float, now: float) -> None:
    """Let a link hold its free messages at rate `level`, if they fill it."""
    messages, hops, link = traffic.messages, traffic.hops, traffic.links[number]
    if link.free == 0:
        return
    left = link.bandwidth
    hop = link.first
    while hop >= 0:
        row = hops[hop].message
        hop = hops[hop].next
        if messages[row].holder < 0:
            continue
        if messages[row].rate > level * _EQUAL:
            _free(traffic, row)
        else:
            left -= messages[row].rate
    # This sum has no rounding errors from messages that have ended.
    link.left = left
    if left > level * _EQUAL * link.free:
        return
    link.level = level
    hop = link.first
    while hop >= 0:
        row = hops[hop].message
        hop = hops[hop].next
        if messages[row].holder < 0:
            _hold(traffic, row, number, level, now)


@inlined
def _hold(traffic: FlowTables, row: int, number: int, rate: float, now: float) -> None:
    """Set the rate of a message from time `now` on, and move the event of its end."""
    hops, links, message = traffic.hops, traffic.links, traffic.messages[row]
    message.holder = number
    traffic.counters[FREE] -= 1
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, message.hops):
        link = links[hops[i].link]
        link.left -= rate
        link.free -= 1
    if message.rate == rate:
        return
    message.left = max(0.0, message.left - message.rate * (now - message.since))
    message.since = now
    message.rate = rate
    move(traffic, row, now + message.left / rate)
