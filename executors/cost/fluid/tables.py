"""Tables of a fluid simulation: messages, the hops of their routes, links, and events."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.tables import Records
from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.formats.message_graph import MessageGraph, Platform
from collplan.planner.memory import require_memory

MESSAGE: Final = np.dtype(
    [
        ("left", "f8"),  # bytes that have not flowed by the time `since`
        ("since", "f8"),
        ("rate", "f8"),  # bytes per second from then on
        ("delay", "f8"),  # latency of its route, or all the time that it takes inside a host
        ("arrival", "f8"),
        ("hops", "i4"),  # where its hops end; they begin where those of the row before end
        ("successors", "i4"),  # the same for the messages that wait for it
        ("pending", "i4"),  # messages that it waits for
        ("slot", "i4"),  # of its event
        ("mark", "i4"),  # last epoch in which its rate was in question; negative once it is known
        ("is_flowing", "i1"),
    ],
    align=True,
)
HOP: Final = np.dtype([("link", "i4"), ("message", "i4"), ("before", "i4"), ("next", "i4")])
"""A link of a message's route; hops of flowing messages over the same link form a list."""
LINK: Final = np.dtype(
    [
        ("bandwidth", "f8"),
        ("left", "f8"),  # bandwidth that messages of known rate leave
        ("share", "f8"),  # of each other message, if the rest were divided equally
        ("first", "i4"),  # hop of the list of flowing messages
        ("users", "i4"),  # messages in that list
        ("open", "i4"),  # those of unknown rate
        ("cut", "i4"),  # those whose rate has become known since `left` was computed
        ("mark", "i4"),  # last epoch in which it was concerned
    ],
    align=True,
)
EVENT: Final = np.dtype([("time", "f8"), ("row", "i4")], align=True)
EVENTS, EPOCH, ARRIVED, LINKS = range(4)
"""Counters: events there are, epochs begun, messages arrived, links concerned in this epoch."""

_MOST_ROWS: Final = 2**31 - 1
_MESSAGE_BYTES: Final = MESSAGE.itemsize + EVENT.itemsize + 64
_HOP_BYTES: Final = HOP.itemsize + 24
_AFTER_BYTES: Final = 32
"""Memory that each needs, with what is allocated only while tables are made."""


class Traffic(NamedTuple):
    """The tables of one simulation.

    Parameters
    ----------
    messages, hops, links : ndarray of MESSAGE, HOP and LINK
        Hops in the order of messages.
    successors : ndarray of int32
        Messages that wait for each message.
    events : ndarray of EVENT
        A heap by time with one event of each message that is under way.
    batch : ndarray of int32
        Messages whose events fall together.
    concerned : ndarray of int32
        Links whose messages get other rates.
    counters : ndarray of int64
        As named above.
    floor : ndarray of float64, shape (1,)
        Rates below it stay in this epoch.
    """

    messages: Records
    hops: Records
    links: Records
    successors: Ints
    events: Records
    batch: Ints
    concerned: Ints
    counters: Ints
    floor: Floats


def make_tables(graph: MessageGraph, platform: Platform) -> Traffic:
    """Return the tables of a message graph on a platform, before anything has begun.

    Raises
    ------
    GraphError
        If a message has no route.
    MemoryLimitError
        If they take more memory than there is.
    """
    n_messages, n_after = len(graph.source), len(graph.after)
    routes = platform.routes_of(graph)
    n_hops = int(platform.lengths[routes].sum())
    n_bytes = n_messages * _MESSAGE_BYTES + n_hops * _HOP_BYTES + n_after * _AFTER_BYTES
    is_countable = max(n_messages, n_hops, n_after) <= _MOST_ROWS
    require_memory(
        n_bytes if is_countable else 2**63,
        "the message graph",
        "simulate",
        "use fewer messages or shorter routes",
    )
    ends, link_of_hop = csr.take_rows(platform.route_begin, routes)
    traffic = traffic_of(graph.n_bytes, ends, platform.route_links[link_of_hop], platform.bandwidth)
    messages = traffic.messages
    messages["pending"] = csr.lengths_of(graph.after_begin)
    messages["delay"] = np.where(
        graph.is_local,
        graph.local_s,
        np.bincount(
            csr.row_numbers(ends),
            platform.latency_s[platform.route_links[link_of_hop]],
            minlength=n_messages,
        ),
    )
    order, successors = csr.group_by(graph.after, n_messages)
    messages["successors"] = successors[1:]
    after = csr.row_numbers(graph.after_begin)[order].astype(np.int32)
    return traffic._replace(successors=after)


def traffic_of(n_bytes: Floats, begin: Ints, route_links: Ints, bandwidth: Floats) -> Traffic:
    """Return the tables of messages that wait for nothing and have no latency.

    Parameters
    ----------
    n_bytes : ndarray of float64
        Of every message.
    begin : ndarray of int64
        Where the links of each route begin in `route_links`.
    route_links : ndarray of int64
        Links of all routes.
    bandwidth : ndarray of float64
        Of every link, in bytes per unit of time.
    """
    messages = np.zeros(len(n_bytes), dtype=MESSAGE)
    messages["left"] = n_bytes
    messages["hops"] = begin[1:]
    hops = np.full(len(route_links), -1, dtype=HOP)
    hops["link"] = route_links
    hops["message"] = csr.row_numbers(begin)
    links = np.zeros(len(bandwidth), dtype=LINK)
    links["bandwidth"] = bandwidth
    links["first"] = -1
    return Traffic(
        messages,
        hops,
        links,
        np.zeros(0, dtype=np.int32),
        np.empty(len(messages), dtype=EVENT),
        np.empty(len(messages), dtype=np.int32),
        np.empty(len(links), dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros(1),
    )
