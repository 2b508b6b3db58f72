"""Tables of messages that share links, of the hops of their routes, of links, and of events."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.tables import Records, table_of
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
