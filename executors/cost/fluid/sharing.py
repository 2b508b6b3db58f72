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

from typing import Final

import numpy as np

from collplan.executors.cost.fluid.events import move
from collplan.executors.cost.fluid.tables import EPOCH, FREE, LINKS, FlowTables
from collplan.executors.cost.tables import inlined, inner

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
