"""Simulation of a message graph, event by event: an oracle for the messages of plans over links.

Latency first, then max-min fair rates, as in SimGrid's fluid model. It shares the rates of flows
(`executors/cost/fluid`) with the simulator of plans, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from message_files import MessageGraph, Platform

from collplan.executors.cost.fluid import (
    EPOCH,
    EVENT,
    EVENTS,
    HOP,
    LINKS,
    MESSAGE,
    FlowTables,
    add,
    allocate,
    enter,
    leave,
    share,
    take,
)
from collplan.executors.cost.tables import inlined
from collplan.planner.arrays import Floats, Ints
from collplan.planner.machine_code.compile_time import Stopwatch
from collplan.planner.machine_code.kernel import compile_with
from collplan.planner.memory import require_memory

_TOGETHER_S: Final = 1e-12
"""Time after the first event within which others count as simultaneous, in seconds.

Rounding errors may separate events that happen at the same time.
"""
_MOST_ROWS: Final = 2**31 - 1
_MESSAGE_BYTES: Final = MESSAGE.itemsize + EVENT.itemsize + 80
_HOP_BYTES: Final = HOP.itemsize + 24
_AFTER_BYTES: Final = 32
"""Memory in bytes per message, hop and dependency, temporary arrays included."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arrival times of the messages of a graph.

    Parameters
    ----------
    arrivals_s : ndarray of float64, shape (n_messages,)
        Arrival time of every message in seconds, in the order of the graph.
    simulate_s : float
        Wall-clock time of the simulation in seconds, including preparation, but not the
        compilation of kernels.
    """

    arrivals_s: Floats
    simulate_s: float

    @cached_property
    def makespan_s(self) -> float:
        """Time until the last message has arrived in seconds; 0 if there is no message."""
        return float(self.arrivals_s.max(initial=0.0))


def simulate_messages(graph: MessageGraph, platform: Platform) -> Arrivals:
    """Simulate a message graph on a platform.

    A message is ready when all messages that it waits for have arrived. The latencies of the
    links of its route pass first, during which it uses no bandwidth. Then its bytes flow over all
    of these links at once, at max-min fair rates. A message inside a host takes the time that the
    graph states.

    Parameters
    ----------
    graph : MessageGraph
    platform : Platform

    Returns
    -------
    Arrivals

    Raises
    ------
    GraphError
        If a message has no route, or if messages wait for each other in a cycle.
    MemoryLimitError
        If the tables take more memory than is available.

    Notes
    -----
    When messages begin or end to flow, only the messages over full links that change get new
    rates. The running time is at most proportional to the number of links of these messages times
    the number of new rates.
    """
    watch = Stopwatch()
    tables = make_tables(graph, platform)
    if run(tables) < len(tables.arrivals):
        graph.refuse_circle(tables.pending > 0)
    return Arrivals(tables.arrivals, watch.work_s)


class Tables(NamedTuple):
    """Tables of one simulation.

    Parameters
    ----------
    traffic : FlowTables
        Messages, the links of their routes, and all links.
    arrivals : ndarray of float64, shape (n_messages,)
        Arrival time of every message in seconds.
    pending : ndarray of int32, shape (n_messages,)
        Number of messages that each message still waits for.
    end, successors : ndarray of int32
        Messages that wait for each message: end of its list, which begins at the end of the one
        before, and all lists.
    batch : ndarray of int32, shape (n_messages,)
        Messages whose events are simultaneous.
    """

    traffic: FlowTables
    arrivals: Floats
    pending: Ints
    end: Ints
    successors: Ints
    batch: Ints


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


def make_tables(graph: MessageGraph, platform: Platform) -> Tables:
    """Return the tables of a message graph on a platform, before the simulation begins.

    Parameters
    ----------
    graph : MessageGraph
    platform : Platform

    Returns
    -------
    Tables

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
    tables = Tables(
        allocate(n_messages, n_hops, platform.bandwidth),
        np.zeros(n_messages),
        np.zeros(n_messages, dtype=np.int32),
        np.zeros(n_messages, dtype=np.int32),
        np.empty(n_after, dtype=np.int32),
        np.empty(n_messages, dtype=np.int32),
    )
    _fill(tables, given, platform.n_hosts)
    return tables


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
def _fill(tables: Tables, given: _Given, n_hosts: int) -> None:
    """Fill in messages, the hops of their routes, and the messages that wait for each message."""
    messages, hops, end = tables.traffic.messages, tables.traffic.hops, tables.end
    n_messages, n_hops = len(messages), 0
    for row in range(n_messages):
        message = messages[row]
        message.left = given.n_bytes[row]
        message.delay = given.local_s[row]
        tables.pending[row] = given.after_begin[row + 1] - given.after_begin[row]
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
        end[given.after[i]] += 1
    n_successors = 0
    for row in range(n_messages):
        number = end[row]
        end[row] = n_successors
        n_successors += number
    # Filling a list moves the position of its next entry from the list's start to its end.
    for row in range(n_messages):
        for i in range(given.after_begin[row], given.after_begin[row + 1]):
            before = given.after[i]
            tables.successors[end[before]] = row
            end[before] += 1


@compile_with(_nrt=False)
def run(tables: Tables) -> int:
    """Simulate until no event is left, and return the number of messages that have arrived."""
    traffic, batch = tables.traffic, tables.batch
    messages, events, counters = traffic.messages, traffic.events, traffic.counters
    n_arrived = 0
    for row in range(len(messages)):
        if tables.pending[row] == 0:
            add(traffic, row, messages[row].delay)
    while counters[EVENTS] > 0:
        now = events[0].time
        n_together = 0
        while counters[EVENTS] > 0 and events[0].time <= now + _TOGETHER_S:
            batch[n_together] = take(traffic)
            n_together += 1
        counters[EPOCH] += 1
        counters[LINKS] = 0
        for i in range(n_together):
            n_arrived += _happen(tables, batch[i], now)
        share(traffic, now)
    return n_arrived


@inlined
def _happen(tables: Tables, row: int, now: float) -> int:
    """Start the flow of a message whose latency has passed, or let a message arrive.

    Return the number of messages that have arrived: 0 or 1.
    """
    traffic, messages = tables.traffic, tables.traffic.messages
    message = messages[row]
    begin = messages[row - 1].hops if row > 0 else 0
    if message.is_flowing:
        leave(traffic, row)
    elif begin < message.hops:
        message.is_flowing = 1
        message.since = now
        enter(traffic, row)
        add(traffic, row, np.inf)
        return 0
    tables.arrivals[row] = now
    begin = tables.end[row - 1] if row > 0 else 0
    for i in range(begin, tables.end[row]):
        waiting = tables.successors[i]
        tables.pending[waiting] -= 1
        if tables.pending[waiting] == 0:
            add(traffic, waiting, now + messages[waiting].delay)
    return 1
