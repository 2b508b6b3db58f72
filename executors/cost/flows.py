"""Messages between nodes as flows over the links of a topology, beside lanes and cores.

From the start of its lane's service, and after the latencies of its route's links, a message is
a flow over the links that it shares with others, at max-min fair rates. It has arrived when
both its receiver's lane has taken it in and its last byte has flowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.fluid.events import add, take
from collplan.executors.cost.fluid.sharing import enter, leave, share
from collplan.executors.cost.fluid.tables import EPOCH, EVENTS, LINKS, Traffic, traffic_of
from collplan.executors.cost.occupancy import IS_LONG
from collplan.executors.cost.parameters import CONTINUATION, NETWORK
from collplan.executors.cost.tables import Places, Records, Simulation, inlined
from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.memory import require_memory
from collplan.planner.plan.plan import Op
from collplan.planner.topology import Fabric
from collplan.planner.topology.links import HOST
from collplan.specs import Network

FLOW: Final = np.dtype(
    [
        ("ends", "f8"),  # when its last byte has left the last link; -1 before
        ("flight", "f8"),  # from there to the receiver
        ("held", "f8"),  # when its send's core is done, if that ends with the flow; else -1
        ("send", "i4"),
        ("has_matched", "i1"),
    ],
    align=True,
)
_TOGETHER_NS: Final = 1e-3
"""Events of flows up to this time after the first one happen with it: rounding parts them."""
_SLOWER: Final = 1 - 1e-9
"""Ratio below which a link is slower than a lane, and not as fast but for rounding."""
_NEXT, _ENDED = 0, 1
_FLOW_BYTES: Final = 256
_HOP_BYTES: Final = 64


class Flows(NamedTuple):
    """The tables of flows.

    Parameters
    ----------
    traffic : Traffic
        Messages between nodes, in the order of their sends, and links: those of the fabric, and
        one of its own for each message that could flow faster than its lane. Times are ns.
    states : ndarray of FLOW
        A row per message.
    flow_of : ndarray of int32
        The message of every send between nodes, -1 for other tasks.
    ended : ndarray of int32
        Messages that ended together.
    counters : ndarray of int64, shape (2,)
        How many of these have been told, and how many there are.
    """

    traffic: Traffic
    states: Records
    flow_of: Ints
    ended: Ints
    counters: Ints


@dataclass(frozen=True, eq=False)
class Routes:
    """Messages between nodes, and the links of their routes.

    Parameters
    ----------
    fabric : Fabric
        The links.
    sends : ndarray of int64
        The send of every message, as a row of the simulator's table.
    n_bytes : ndarray of float64
        Its size.
    begin, links : ndarray of int64
        The links of every route, in CSR form; none inside a host.
    """

    fabric: Fabric
    sends: Ints
    n_bytes: Floats
    begin: Ints
    links: Ints


def find_routes(places: Places, fabric: Fabric) -> Routes:
    """Return the messages between nodes, and their routes.

    Raises
    ------
    MemoryLimitError
        If their tables take more memory than there is.
    """
    tasks, queues, clocks = places.tasks, places.queues, places.clocks
    is_send = (tasks["op"] == Op.SEND) & (tasks["link"] >= NETWORK)
    sends = np.flatnonzero(is_send)
    require_memory(
        len(sends) * _FLOW_BYTES,
        "messages over a topology",
        "simulate",
        "use fewer ranks or a smaller count",
    )
    rows = tasks[sends]
    queue = rows["queue"]
    source, target = queues["node"][queue], queues["node"][rows["far_queue"]]
    lane = (queues["lane"][queue] - clocks.lane_out) % clocks.n_lanes
    # The first byte of a piece that follows is not free, and counted twice.
    n_bytes = rows["work"] - (rows["link"] == CONTINUATION)
    begin, links = fabric.node_routes(source, target, lane)
    require_memory(
        len(links) * _HOP_BYTES,
        "messages over a topology",
        "simulate",
        "use fewer ranks or a smaller count",
    )
    return Routes(fabric, sends, n_bytes, begin, links)


def make_flows(routes: Routes, places: Places, network: Network) -> Flows:
    """Return the tables of flows before anything has begun."""
    rows, fabric = places.tasks[routes.sends], routes.fabric
    bandwidth = fabric.bandwidth / 1e9
    message = csr.row_numbers(routes.begin)
    delay = np.bincount(message, fabric.latency_ns[routes.links], minlength=len(rows))
    pace = network.network.G_ns_per_byte * places.queues["pace"][rows["queue"]]
    is_shared = _is_shared(routes, bandwidth, pace, network)
    limit = _limits(routes, rows, pace, network)
    slowest = np.full(len(rows), np.inf)
    np.minimum.at(slowest, message[is_shared], bandwidth[routes.links[is_shared]])
    has_own = limit < slowest * _SLOWER
    # A link of its own begins the route.
    own = np.flatnonzero(has_own)
    links = np.concatenate((len(bandwidth) + np.arange(len(own)), routes.links[is_shared]))
    of = np.concatenate((own, message[is_shared]))
    order = np.argsort(of, kind="stable")
    begin = csr.indptr_of(of[order], len(rows))
    bandwidth = np.concatenate((bandwidth, limit[own]))
    traffic = traffic_of(routes.n_bytes, begin, links[order], bandwidth)
    traffic.messages["delay"] = delay
    states = np.zeros(len(rows), dtype=FLOW)
    states["ends"] = states["held"] = -1
    states["send"] = routes.sends
    flow_of = np.full(len(places.tasks), -1, dtype=np.int32)
    flow_of[routes.sends] = np.arange(len(rows))
    ended = np.empty(len(rows), dtype=np.int32)
    return Flows(traffic, states, flow_of, ended, np.zeros(2, dtype=np.int64))


def _is_shared(routes: Routes, bandwidth: Floats, pace: Floats, network: Network) -> Bools:
    """Mark the links of routes that messages share: not those that serve them as lanes do."""
    message = csr.row_numbers(routes.begin)
    has_bytes = routes.n_bytes[message] > 0
    if network.contention == "fluid":
        return np.asarray(has_bytes)
    is_own = routes.fabric.link_class[routes.links] == HOST
    is_slower = bandwidth[routes.links] * pace[message] < _SLOWER
    return np.asarray(has_bytes & (~is_own | is_slower))


def _limits(routes: Routes, rows: Records, pace: Floats, network: Network) -> Floats:
    """Return the rate that each message cannot exceed, in bytes per ns.

    In order, a message of s bytes takes its lane (s - 1)·G. A lane that passes bursts limits
    none, nor does one without order, but inside a host.
    """
    n_bytes = routes.n_bytes
    none = np.full(len(rows), np.inf)
    if network.contention == "fluid":
        is_inside = csr.lengths_of(routes.begin) == 0
        return np.divide(1.0, pace, out=none, where=is_inside & (n_bytes > 0) & (pace > 0))
    takes = np.maximum(rows["work"] - 1, 0) * pace
    # Where nothing is shared there is nothing to limit.
    limits = (takes > 0) & (csr.lengths_of(routes.begin) > 0) & (network.burst_bytes == 0)
    return np.divide(n_bytes, takes, out=none, where=limits)


@inlined
def begin_flow(sim: Simulation, flows: Flows, row: int, arrives: float) -> float:
    """Let the message of send `row` flow after the latency of its route; return its arrival."""
    flow = flows.flow_of[row]
    if flow < 0:
        return arrives
    messages = flows.traffic.messages
    delay = messages[flow].delay
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin < messages[flow].hops:
        link = sim.links[sim.tasks[row].link]
        flows.states[flow].flight = link.o + link.L
        add(flows.traffic, flow, arrives - (link.o + link.L) + delay)
    return float(arrives + delay)


@inlined
def keep_send(sim: Simulation, flows: Flows, row: int) -> bool:
    """Tell whether a send that asked first ends when its last byte has flowed; remember it."""
    flow = flows.flow_of[row]
    if flow < 0 or sim.costs[0].handshake == 0:
        return False
    task, messages = sim.tasks[row], flows.traffic.messages
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin == messages[flow].hops or not (task.state & IS_LONG or task.link == CONTINUATION):
        return False
    flows.states[flow].held = task.end
    return True


@inlined
def has_come(sim: Simulation, flows: Flows, row: int) -> bool:
    """Tell whether the last byte of a message that matched has flowed; its receive ends then."""
    flow = flows.flow_of[row]
    if flow < 0:
        return True
    messages, state = flows.traffic.messages, flows.states[flow]
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin == messages[flow].hops:
        return True
    state.has_matched = 1
    if state.ends < 0:
        return False
    recv = sim.tasks[sim.tasks[row].partner]
    recv.end = max(recv.end, state.ends + state.flight + sim.links[sim.tasks[row].link].last)
    return True


@inlined
def next_flow(runs: Records, flows: Flows, place: int) -> int:
    """Let flows begin and end before the next other event; return one that ended, or -1."""
    traffic, counters = flows.traffic, flows.counters
    messages, events = traffic.messages, traffic.events
    until = runs[place].head_time if place >= 0 else np.inf
    while counters[_NEXT] == counters[_ENDED]:
        if traffic.counters[EVENTS] == 0 or events[0].time >= until:
            return -1
        now = events[0].time
        counters[_NEXT] = counters[_ENDED] = 0
        traffic.counters[EPOCH] += 1
        traffic.counters[LINKS] = 0
        traffic.floor[0] = np.inf
        while traffic.counters[EVENTS] > 0 and events[0].time <= now + _TOGETHER_NS:
            flow = take(traffic)
            if messages[flow].is_flowing:
                leave(traffic, flow)
                flows.states[flow].ends = now
                flows.ended[counters[_ENDED]] = flow
                counters[_ENDED] += 1
            else:
                messages[flow].is_flowing = 1
                messages[flow].since = now
                enter(traffic, flow)
                add(traffic, flow, np.inf)
        share(traffic, now)
    counters[_NEXT] += 1
    return int(flows.ended[counters[_NEXT] - 1])
