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
"""Events up to this time after the first one happen with it, as rounding may have parted them."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The time when each message of a graph has arrived.

    Parameters
    ----------
    arrivals_s : ndarray of float64
        Of every message, in the graph's order.
    simulate_s : float
        Seconds the simulation took, preparation included, compiling of kernels not.
    """

    arrivals_s: Floats
    simulate_s: float

    @cached_property
    def makespan_s(self) -> float:
        """Seconds until the last message has arrived; 0 where there is none."""
        return float(self.arrivals_s.max(initial=0.0))


def simulate_messages(graph: MessageGraph, platform: Platform) -> Arrivals:
    """Simulate a message graph on a platform.

    A message is ready when all that it waits for have arrived. Then the latencies of its
    route's links pass, during which it shares nothing; then its bytes flow over all of these links
    at once, at max-min fair rates. A message inside a host takes the time that the graph states.

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
        If a message has no route, or messages wait for each other.
    MemoryLimitError
        If the tables take more memory than there is.

    Notes
    -----
    When messages begin or end to flow, only messages whose full links change get new rates. The
    time is at most proportional to the links of these messages times the number of new rates.
    """
    watch = Stopwatch()
    traffic = make_tables(graph, platform)
    if run(traffic) < len(traffic.messages):
        graph.refuse_circle(traffic.messages["pending"] > 0)
    return Arrivals(np.ascontiguousarray(traffic.messages["arrival"]), watch.work_s)


@compile_with(_nrt=False)
def run(traffic: Traffic) -> int:
    """Simulate until no event is left; return how many messages have arrived."""
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
    """Let a message flow whose latency has passed, and let others arrive."""
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
