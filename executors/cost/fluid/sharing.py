"""Max-min fair rates of messages, computed anew only where links are connected to a change.

Progressive filling: all messages get the same rate until a link is full. Those that cross it keep
that rate, and the others continue with what is left. Messages that share no link with a message
that began or ended, directly or through others, keep their rates. So do those that are slower than
all messages that ended were, and than all that began can be: no link that is full at a lower rate
is used by any of these. Links are searched for through the other messages only.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.executors.cost.fluid.events import move
from collplan.executors.cost.fluid.tables import EPOCH, LINKS, Traffic
from collplan.executors.cost.tables import inlined

_EQUAL: Final = 1 + 1e-13
"""Ratio up to which links are full together: what rounding makes of equal shares."""
_SLOWER: Final = 1 - 1e-9
"""Ratio from which on a rate is lower, and not equal but for rounding."""


@inlined
def concern(traffic: Traffic, number: int) -> None:
    """Note that messages over a link get other rates in this epoch."""
    link = traffic.links[number]
    if link.mark == traffic.counters[EPOCH]:
        return
    link.mark = traffic.counters[EPOCH]
    traffic.concerned[traffic.counters[LINKS]] = number
    traffic.counters[LINKS] += 1


@inlined
def enter(traffic: Traffic, row: int) -> None:
    """Put a message into the lists of all links of its route."""
    hops = traffic.hops
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, traffic.messages[row].hops):
        concern(traffic, hops[i].link)
        link = traffic.links[hops[i].link]
        hops[i].before = -1
        hops[i].next = link.first
        if link.first >= 0:
            hops[link.first].before = i
        link.first = i
        link.users += 1
        traffic.floor[0] = min(traffic.floor[0], link.bandwidth / link.users)


@inlined
def leave(traffic: Traffic, row: int) -> None:
    """Take a message out of the lists of all links of its route."""
    hops = traffic.hops
    traffic.floor[0] = min(traffic.floor[0], traffic.messages[row].rate)
    begin = traffic.messages[row - 1].hops if row > 0 else 0
    for i in range(begin, traffic.messages[row].hops):
        concern(traffic, hops[i].link)
        link = traffic.links[hops[i].link]
        before, after = hops[i].before, hops[i].next
        if before >= 0:
            hops[before].next = after
        else:
            link.first = after
        if after >= 0:
            hops[after].before = before
        link.users -= 1


@inlined
def share(traffic: Traffic, now: float) -> None:
    """Give messages that are connected to the links concerned their rates from now on."""
    messages, hops, links = traffic.messages, traffic.hops, traffic.links
    epoch = traffic.counters[EPOCH]
    n_messages = _connect(traffic)
    level = 0.0
    while n_messages > 0:
        level = _fill(traffic, level)
        for i in range(traffic.counters[LINKS]):
            link = links[traffic.concerned[i]]
            if link.share > level * _EQUAL:
                continue
            hop = link.first
            while hop >= 0:
                row = hops[hop].message
                hop = hops[hop].next
                if messages[row].mark != epoch:
                    continue
                messages[row].mark = -epoch
                n_messages -= 1
                begin = messages[row - 1].hops if row > 0 else 0
                for j in range(begin, messages[row].hops):
                    links[hops[j].link].cut += 1
                _set_rate(traffic, row, level, now)


@inlined
def _connect(traffic: Traffic) -> int:
    """Find links and messages connected to the links concerned; return the number of messages.

    Links keep what slower messages, which are not counted, leave.
    """
    messages, hops, links = traffic.messages, traffic.hops, traffic.links
    epoch = traffic.counters[EPOCH]
    floor = traffic.floor[0] * _SLOWER
    n_messages, i = 0, 0
    while i < traffic.counters[LINKS]:
        link = links[traffic.concerned[i]]
        i += 1
        link.left = link.bandwidth
        link.open = link.users
        link.cut = 0
        hop = link.first
        while hop >= 0:
            row = hops[hop].message
            hop = hops[hop].next
            if 0 < messages[row].rate < floor:
                link.left -= messages[row].rate
                link.open -= 1
                continue
            if messages[row].mark == epoch:
                continue
            messages[row].mark = epoch
            n_messages += 1
            begin = messages[row - 1].hops if row > 0 else 0
            for j in range(begin, messages[row].hops):
                concern(traffic, hops[j].link)
        # Less than the floor would be so by rounding only.
        link.share = max(floor, link.left / max(link.open, 1))
    return n_messages


@inlined
def _fill(traffic: Traffic, level: float) -> float:
    """Return the rate at which the next links are full; forget links without open messages."""
    links, concerned = traffic.links, traffic.concerned
    least = np.inf
    n_links = 0
    for i in range(traffic.counters[LINKS]):
        number = concerned[i]
        link = links[number]
        if link.cut > 0:
            link.left -= level * link.cut
            link.open -= link.cut
            link.cut = 0
            if link.open > 0:
                # What is left can be too little by rounding only.
                link.share = max(level, link.left / link.open)
        if link.open == 0:
            continue
        least = min(least, link.share)
        concerned[n_links] = number
        n_links += 1
    traffic.counters[LINKS] = n_links
    return least


@inlined
def _set_rate(traffic: Traffic, row: int, rate: float, now: float) -> None:
    """Let a message flow at a rate from now on; its event moves to where it ends."""
    message = traffic.messages[row]
    if message.rate == rate:
        return
    message.left = max(0.0, message.left - message.rate * (now - message.since))
    message.since = now
    message.rate = rate
    move(traffic, row, now + message.left / rate)
