"""Simulation of a message graph, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from collplan.executors.cost.fluid.events import add, take
from collplan.executors.cost.fluid.sharing import enter, leave, share
from collplan.executors.cost.fluid.tables import ARRIVED, EPOCH, EVENTS, LINKS, Traffic, make_tables
from collplan.executors.cost.tables import inlined
from collplan.planner.arrays import Floats
from collplan.planner.arrays.compile_time import Stopwatch
from collplan.planner.arrays.jit import compile_with
from collplan.planner.formats.message_graph import MessageGraph, Platform

_TOGETHER_S: Final = 1e-12
"""Time after the first event within which others count as simultaneous, in seconds.

Rounding errors may separate events that happen at the same time.
"""


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
    traffic = make_tables(graph, platform)
    if run(traffic) < len(traffic.messages):
        graph.refuse_circle(traffic.messages["pending"] > 0)
    return Arrivals(np.ascontiguousarray(traffic.messages["arrival"]), watch.work_s)


@compile_with(_nrt=False)
def run(traffic: Traffic) -> int:
    """Simulate until no event is left, and return the number of messages that have arrived."""
    messages, events, counters = traffic.messages, traffic.events, traffic.counters
    for row in range(len(messages)):
        if messages[row].pending == 0:
            add(traffic, row, messages[row].delay)
    while counters[EVENTS] > 0:
        now = events[0].time
        n_together = 0
        while counters[EVENTS] > 0 and events[0].time <= now + _TOGETHER_S:
            traffic.batch[n_together] = take(traffic)
            n_together += 1
        counters[EPOCH] += 1
        counters[LINKS] = 0
        for i in range(n_together):
            _happen(traffic, traffic.batch[i], now)
        share(traffic, now)
    return int(counters[ARRIVED])


@inlined
def _happen(traffic: Traffic, row: int, now: float) -> None:
    """Start the flow of a message whose latency has passed, or let a message arrive."""
    messages = traffic.messages
    message = messages[row]
    begin = messages[row - 1].hops if row > 0 else 0
    if message.is_flowing:
        leave(traffic, row)
    elif begin < message.hops:
        message.is_flowing = 1
        message.since = now
        enter(traffic, row)
        add(traffic, row, np.inf)
        return
    message.arrival = now
    traffic.counters[ARRIVED] += 1
    begin = messages[row - 1].successors if row > 0 else 0
    for i in range(begin, message.successors):
        waiting = traffic.successors[i]
        messages[waiting].pending -= 1
        if messages[waiting].pending == 0:
            add(traffic, waiting, now + messages[waiting].delay)
