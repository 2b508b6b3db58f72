"""Tables of a fluid simulation: messages, the hops of their routes, links, and events."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.tables import Records, table_of
from collplan.planner.arrays import Floats, Ints
from collplan.planner.arrays.jit import compile_with
from collplan.planner.formats.message_graph import MessageGraph, Platform
from collplan.planner.memory import require_memory

MESSAGE: Final = np.dtype(
    [
        ("left", "f8"),  # bytes that have not flowed by the time `since`
        ("since", "f8"),  # time of the last change of its rate
        ("rate", "f8"),  # bytes per unit of time from then on
        ("delay", "f8"),  # latency of its route; its whole duration inside a host
        ("arrival", "f8"),
        ("hops", "i4"),  # end of its hops, which begin at the end of the previous row's
        ("successors", "i4"),  # end of the list of messages that wait for it, likewise
        ("pending", "i4"),  # number of messages that it still waits for
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
EVENTS, EPOCH, ARRIVED, LINKS, FREE = range(5)
"""Counters: events, epochs, messages that arrived, links changed in this epoch, free messages."""

_MOST_ROWS: Final = 2**31 - 1
_MESSAGE_BYTES: Final = MESSAGE.itemsize + EVENT.itemsize + 64
_HOP_BYTES: Final = HOP.itemsize + 24
_AFTER_BYTES: Final = 32
"""Memory in bytes per message, hop and dependency, temporary arrays included."""


class Traffic(NamedTuple):
    """Tables of one simulation.

    Parameters
    ----------
    messages, hops, links : ndarray of MESSAGE, HOP and LINK
        Messages; the links of their routes, in the order of messages; and all links.
    successors : ndarray of int32
        Messages that wait for each message.
    events : ndarray of EVENT
        Heap by time with one event for each message that is in progress.
    batch : ndarray of int32
        Messages whose events are simultaneous.
    changed : ndarray of int32
        Links whose messages can get other rates in this epoch.
    counters : ndarray of int64, shape (5,)
        Counters at the indices `EVENTS`, `EPOCH`, `ARRIVED`, `LINKS` and `FREE`.
    """

    messages: Records
    hops: Records
    links: Records
    successors: Ints
    events: Records
    batch: Ints
    changed: Ints
    counters: Ints


class _Given(NamedTuple):
    """Columns of a message graph and of a platform, from which the tables are built."""

    source: Ints
    target: Ints
    n_bytes: Floats
    after_begin: Ints
    after: Ints
    local_s: Floats
    latency_s: Floats
    route_begin: Ints
    route_links: Ints


def make_tables(graph: MessageGraph, platform: Platform) -> Traffic:
    """Return the tables of a message graph on a platform, before the simulation begins.

    Parameters
    ----------
    graph : MessageGraph
    platform : Platform

    Returns
    -------
    Traffic

    Raises
    ------
    GraphError
        If a message has no route.
    MemoryLimitError
        If the tables take more memory than is available.
    """
    given = _Given(
        graph.source,
        graph.target,
        graph.n_bytes,
        graph.after_begin,
        graph.after,
        graph.local_s,
        platform.latency_s,
        platform.route_begin,
        platform.route_links,
    )
    n_messages, n_after = len(graph.source), len(graph.after)
    n_hops = _count_hops(given, platform.n_hosts)
    if n_hops < 0:
        platform.refuse(graph)
    n_bytes = n_messages * _MESSAGE_BYTES + n_hops * _HOP_BYTES + n_after * _AFTER_BYTES
    is_countable = max(n_messages, n_hops, n_after) <= _MOST_ROWS
    require_memory(
        n_bytes if is_countable else 2**63,
        "the message graph",
        "simulate",
        "use fewer messages or shorter routes",
    )
    traffic = allocate(n_messages, n_hops, n_after, platform.bandwidth)
    _fill(traffic, given, platform.n_hosts)
    return traffic


def allocate(n_messages: int, n_hops: int, n_after: int, bandwidth: Floats) -> Traffic:
    """Return tables of unused links, with room for messages.

    Parameters
    ----------
    n_messages, n_hops, n_after : int
        Number of messages, of links of all their routes, and of messages that others wait for.
    bandwidth : ndarray of float64, shape (n_links,)
        Bandwidth of every link, in bytes per unit of time.

    Returns
    -------
    Traffic
    """
    links = np.zeros(len(bandwidth), dtype=LINK)
    links["bandwidth"] = links["left"] = bandwidth
    links["level"] = np.inf
    links["first"] = -1
    return Traffic(
        table_of(n_messages, MESSAGE),
        np.empty(n_hops, dtype=HOP),
        links,
        np.empty(n_after, dtype=np.int32),
        np.empty(n_messages, dtype=EVENT),
        np.empty(n_messages, dtype=np.int32),
        np.empty(len(links), dtype=np.int32),
        np.zeros(5, dtype=np.int64),
    )


@compile_with(_nrt=False)
def _count_hops(given: _Given, n_hosts: int) -> int:
    """Return the total number of links of all routes; -1 if a message has no route."""
    n_hops = 0
    for row in range(len(given.source)):
        source, target = given.source[row], given.target[row]
        if source >= n_hosts or target >= n_hosts:
            return -1
        if source != target:
            route = source * n_hosts + target
            length = given.route_begin[route + 1] - given.route_begin[route]
            if length == 0:
                return -1
            n_hops += length
    return int(n_hops)


@compile_with(_nrt=False)
def _fill(traffic: Traffic, given: _Given, n_hosts: int) -> None:
    """Fill in messages, the hops of their routes, and the messages that wait for each message."""
    messages, hops = traffic.messages, traffic.hops
    n_messages, n_hops = len(messages), 0
    for row in range(n_messages):
        message = messages[row]
        message.left = given.n_bytes[row]
        message.delay = given.local_s[row]
        message.pending = given.after_begin[row + 1] - given.after_begin[row]
        source, target = given.source[row], given.target[row]
        if source != target:
            route = source * n_hosts + target
            for i in range(given.route_begin[route], given.route_begin[route + 1]):
                hop = hops[n_hops]
                hop.link = given.route_links[i]
                hop.message = row
                hop.before = -1
                hop.next = -1
                message.delay += given.latency_s[hop.link]
                n_hops += 1
        message.hops = n_hops
    for i in range(given.after_begin[n_messages]):
        messages[given.after[i]].successors += 1
    n_successors = 0
    for row in range(n_messages):
        number = messages[row].successors
        messages[row].successors = n_successors
        n_successors += number
    # Filling a list moves the position of its next entry from the list's start to its end.
    for row in range(n_messages):
        for i in range(given.after_begin[row], given.after_begin[row + 1]):
            before = messages[given.after[i]]
            traffic.successors[before.successors] = row
            before.successors += 1
