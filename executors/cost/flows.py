"""Flows of messages between nodes over the links of a topology, in addition to lanes and cores.

A message becomes a flow when its lane has begun to serve it and the latencies of the links of its
route have passed. Flows share links at max-min fair rates. A message has arrived when the lane of
its receiver has taken it in and its last byte has flowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from collplan.executors.cost.fluid import (
    EPOCH,
    EVENTS,
    LINKS,
    FlowTables,
    add,
    allocate,
    enter,
    leave,
    share,
    take,
)
from collplan.executors.cost.occupancy import IS_LONG
from collplan.executors.cost.parameters import CONTINUATION, NETWORK
from collplan.executors.cost.tables import Places, Records, Simulation, inlined
from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.memory import require_memory
from collplan.planner.plan.plan import Op
from collplan.planner.topology import Fabric
from collplan.planner.topology.links import HOST
from collplan.specs import Network

FLOW: Final = np.dtype(
    [
        ("begins", "f8"),
        ("ends", "f8"),  # time when the last byte has left the last link; -1 before
        ("flight", "f8"),  # time from the last link to the receiver
        ("held", "f8"),  # end of its send without the flow, if the send waits for it; else -1
        ("send", "i4"),
        ("last", "i4"),  # last piece of the send; `send` itself if it is not cut into pieces
        ("has_matched", "i1"),  # whether the receive has matched
    ],
    align=True,
)
_TOGETHER_NS: Final = 1e-3
"""Time after the first event of flows within which others count as simultaneous, in ns.

Rounding errors may separate events that happen at the same time.
"""
_SLOWER: Final = 1 - 1e-9
"""Ratio of rates below which a link counts as slower than a lane in spite of rounding errors."""
_NEXT, _ENDED = 0, 1
_FLOW_BYTES: Final = 256
_HOP_BYTES: Final = 64


class Flows(NamedTuple):
    """The tables of flows.

    Parameters
    ----------
    traffic : FlowTables
        Messages between nodes in the order of their sends, and links. The links are those of the
        fabric, and a private link for each message whose rate has a limit. Times are in ns.
    states : ndarray of FLOW, shape (n_messages,)
    flow_of : ndarray of int32, shape (n_tasks,)
        Message of every send between nodes, and of its pieces; -1 for other tasks.
    ended : ndarray of int32, shape (n_messages,)
        Messages that ended together.
    counters : ndarray of int64, shape (2,)
        Number of entries of `ended` that `next_flow` has returned, and number of its entries.
    """

    traffic: FlowTables
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
        Links of the topology.
    sends, last : ndarray of int64, shape (n_messages,)
        Send of every message, as a row of the simulator's table, and its last piece.
    n_bytes : ndarray of float64, shape (n_messages,)
        Size of every message.
    begin, links : ndarray of int64
        Links of every route, in CSR form; routes inside a host have none.
    source, target, sender, receiver, out_lane, in_lane : ndarray of int, shape (n_messages,)
        Nodes, ranks, and clocks of lanes at both ends of every message.
    n_rows : int
        Number of rows of the simulator's table.
    """

    fabric: Fabric
    sends: Ints
    last: Ints
    n_bytes: Floats
    begin: Ints
    links: Ints
    source: Ints
    target: Ints
    sender: Ints
    receiver: Ints
    out_lane: Ints
    in_lane: Ints
    n_rows: int

    @cached_property
    def alone_ns(self) -> Floats:
        """Transfer time of every message alone over the slowest link of its route, in ns."""
        slowest = np.full(len(self.sends), np.inf)
        np.minimum.at(slowest, csr.row_numbers(self.begin), self.fabric.bandwidth[self.links])
        return np.asarray(self.n_bytes / slowest * 1e9)

    @cached_property
    def delays(self) -> Floats:
        """Latency of the route of every row of the simulator's table, in ns."""
        message = csr.row_numbers(self.begin)
        latency = self.fabric.latency_ns[self.links]
        delays = np.zeros(self.n_rows)
        delays[self.sends] = np.bincount(message, latency, minlength=len(self.sends))
        return delays


def find_routes(places: Places, fabric: Fabric) -> Routes:
    """Return the messages of a plan between nodes, and their routes.

    Parameters
    ----------
    places : Places
    fabric : Fabric

    Returns
    -------
    Routes

    Raises
    ------
    MemoryLimitError
        If the tables of flows take more memory than is available.
    """
    tasks, queues, clocks = places.tasks, places.queues, places.clocks
    pieces = np.flatnonzero((tasks["op"] == Op.SEND) & (tasks["link"] >= NETWORK))
    # The pieces of a message follow its first one, and each counts its first byte twice.
    is_more = tasks["link"][pieces] == CONTINUATION
    first = np.flatnonzero(~is_more)
    sends, last = pieces[first], pieces[np.append(first, len(pieces))[1:] - 1]
    sizes = tasks["work"][pieces] - is_more
    n_bytes = np.add.reduceat(sizes, first) if len(first) else sizes
    require_memory(
        len(sends) * _FLOW_BYTES,
        "messages over a topology",
        "simulate",
        "use fewer ranks or a smaller count",
    )
    # Columns are taken one by one, because copies of whole rows take several times as long.
    ends = [tasks[field][sends] for field in ("queue", "far_queue")]
    (source, target), (sender, receiver), (out_lane, in_lane) = (
        [queues[field][end] for end in ends] for field in ("node", "rank", "lane")
    )
    lane = (out_lane - clocks.lane_out) % clocks.n_lanes
    begin, links = fabric.node_routes(source, target, lane)
    require_memory(
        len(links) * _HOP_BYTES,
        "messages over a topology",
        "simulate",
        "use fewer ranks or a smaller count",
    )
    return Routes(
        fabric,
        sends,
        last,
        n_bytes,
        begin,
        links,
        source,
        target,
        sender,
        receiver,
        out_lane,
        in_lane,
        len(tasks),
    )


def make_flows(routes: Routes, places: Places, network: Network) -> Flows:
    """Return the tables of flows before the simulation begins.

    Links that the lanes cannot fill are left out: links of hosts that are at least as fast as
    their lanes, and other links that are at least as fast as all lanes together that send over
    them.

    Parameters
    ----------
    routes : Routes
        Messages between nodes.
    places : Places
        Tasks of the plan, and the clocks that they hold.
    network : Network
        Parameters of the cost model.

    Returns
    -------
    Flows
    """
    queue = places.tasks["queue"][routes.sends]
    pace = network.network.G_ns_per_byte * places.queues["pace"][queue]
    bandwidth = routes.fabric.bandwidth / 1e9
    is_kept = np.zeros(len(bandwidth), dtype=np.bool_)
    order = np.argsort(routes.out_lane, kind="stable")
    is_own = routes.fabric.link_class == HOST
    senders = (order, routes.out_lane, pace, routes.n_bytes)
    of_fabric, shared = (bandwidth, is_own, is_kept), (routes.begin, routes.links)
    # A lane that passes bursts can exceed its rate.
    _find_shared(senders, shared, of_fabric, network.burst_bytes > 0)
    limit = _limits(routes, pace, network)
    begin = np.zeros(len(queue) + 1, dtype=np.int64)
    _take_shared((routes.begin, routes.links), routes.n_bytes, limit, bandwidth, is_kept, begin)
    begin = np.cumsum(begin)
    links = np.empty(begin[-1], dtype=np.int64)
    own = _fill_shared((routes.begin, routes.links), limit, is_kept, begin, links, len(bandwidth))
    bandwidth = np.concatenate((bandwidth, limit[own]))
    traffic = allocate(len(queue), len(links), bandwidth)
    messages, hops = traffic.messages, traffic.hops
    messages["left"], messages["hops"] = routes.n_bytes, begin[1:]
    messages["delay"] = routes.delays[routes.sends]
    hops["link"], hops["message"] = links, csr.row_numbers(begin)
    hops["before"] = hops["next"] = -1
    states = np.zeros(len(queue), dtype=FLOW)
    states["ends"] = states["held"] = -1
    states["send"], states["last"] = routes.sends, routes.last
    flow_of = np.full(len(places.tasks), -1, dtype=np.int32)
    which, piece = csr.expand(routes.last - routes.sends + 1)
    flow_of[routes.sends[which] + piece] = which
    ended = np.empty(len(queue), dtype=np.int32)
    return Flows(traffic, states, flow_of, ended, np.zeros(2, dtype=np.int64))


@compiled
def _find_shared(
    senders: tuple[Ints, Ints, Floats, Floats],
    routes: tuple[Ints, Ints],
    fabric: tuple[Floats, Bools, Bools],
    has_bursts: bool,
) -> None:
    """Mark the links that lanes can fill.

    Messages are visited in `order`, which groups them by lane.
    """
    order, lane, pace, n_bytes = senders
    begin, links = routes
    bandwidth, is_own, is_kept = fabric
    load = np.zeros(len(bandwidth))
    last = np.full(len(bandwidth), -1, np.int64)
    for i in range(len(order)):
        message = order[i]
        if n_bytes[message] == 0:
            continue
        for hop in range(begin[message], begin[message + 1]):
            link = links[hop]
            if is_own[link]:
                if bandwidth[link] * pace[message] < _SLOWER:
                    is_kept[link] = True
            elif has_bursts or pace[message] == 0:
                is_kept[link] = True
            elif last[link] != lane[message]:
                last[link] = lane[message]
                load[link] += 1 / pace[message]
    for link in range(len(bandwidth)):
        is_kept[link] |= load[link] * _SLOWER > bandwidth[link]


@compiled
def _take_shared(
    routes: tuple[Ints, Ints],
    n_bytes: Floats,
    limit: Floats,
    bandwidth: Floats,
    is_kept: Bools,
    lengths: Ints,
) -> None:
    """Count the links of every flow, and remove limits that a link of its route makes redundant.

    The count of message i is stored in ``lengths[i + 1]``. A removed limit is infinite.
    """
    begin, links = routes
    for message in range(len(n_bytes)):
        n, slowest = 0, np.inf
        if n_bytes[message] > 0:
            for hop in range(begin[message], begin[message + 1]):
                if is_kept[links[hop]]:
                    n += 1
                    slowest = min(slowest, bandwidth[links[hop]])
        if limit[message] < slowest * _SLOWER and n > 0:
            n += 1
        else:
            limit[message] = np.inf
        lengths[message + 1] = n


@compiled
def _fill_shared(
    routes: tuple[Ints, Ints],
    limit: Floats,
    is_kept: Bools,
    begin: Ints,
    links: Ints,
    n_links: int,
) -> Ints:
    """Fill in the links of flows; return the messages whose first link is a private one."""
    route_begin, route_links = routes
    own = np.empty(len(limit), np.int64)
    n_own = 0
    for message in range(len(limit)):
        place = begin[message]
        if place == begin[message + 1]:
            continue
        if limit[message] < np.inf:
            own[n_own] = message
            links[place] = n_links + n_own
            n_own += 1
            place += 1
        for hop in range(route_begin[message], route_begin[message + 1]):
            if is_kept[route_links[hop]]:
                links[place] = route_links[hop]
                place += 1
    return own[:n_own]


def _limits(routes: Routes, pace: Floats, network: Network) -> Floats:
    """Return the largest rate of each message in bytes per ns; infinity if it has no limit.

    A message of s bytes between hosts takes its lane for (s - 1)·G, which limits its rate unless
    the lanes pass bursts.
    """
    n_bytes = routes.n_bytes
    none = np.full(len(n_bytes), np.inf)
    is_inside = csr.lengths_of(routes.begin) == 0
    takes = np.maximum(n_bytes - 1, 0) * pace
    limits = (takes > 0) & ~is_inside & (network.burst_bytes == 0)
    return np.asarray(np.divide(n_bytes, takes, out=none, where=limits))


@inlined
def begin_flow(sim: Simulation, flows: Flows, row: int, arrives: float) -> float:
    """Start the flow of send `row` after the latency of its route; return the arrival time."""
    flow = flows.flow_of[row]
    if flow < 0:
        return arrives
    messages = flows.traffic.messages
    delay = messages[flow].delay
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin < messages[flow].hops and row == flows.states[flow].send:
        link = sim.links[sim.tasks[row].link]
        flows.states[flow].flight = link.o + link.L
        add(flows.traffic, flow, arrives - (link.o + link.L) + delay)
    return float(arrives + delay)


@inlined
def keep_send(sim: Simulation, flows: Flows, row: int) -> bool:
    """Return whether a send with a handshake ends only with its flow, and record that it waits."""
    flow = flows.flow_of[row]
    if flow < 0 or sim.costs[0].handshake == 0 or row != flows.states[flow].last:
        return False
    task, messages = sim.tasks[row], flows.traffic.messages
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin == messages[flow].hops or not (task.state & IS_LONG or task.link == CONTINUATION):
        return False
    if flows.states[flow].ends >= 0:
        # The flow ended before the lane had served the last piece.
        task.end = max(task.end, flows.states[flow].ends)
        return False
    flows.states[flow].held = task.end
    return True


@inlined
def keep_matched(flows: Flows, row: int, now: float) -> bool:
    """Return whether a send that matches now ends only with its flow, and record that it waits."""
    flow = flows.flow_of[row]
    if flow < 0 or row != flows.states[flow].last or flows.states[flow].ends >= 0:
        return False
    begin = flows.traffic.messages[flow - 1].hops if flow > 0 else 0
    if begin == flows.traffic.messages[flow].hops:
        return False
    flows.states[flow].held = now
    return True


@inlined
def has_come(sim: Simulation, flows: Flows, row: int) -> bool:
    """Return whether the last byte of a message that matched has flowed, which ends its receive.

    If a message is sent in pieces, only its last piece waits for the flow.
    """
    flow = flows.flow_of[row]
    if flow < 0 or row != flows.states[flow].last:
        return True
    messages, state = flows.traffic.messages, flows.states[flow]
    begin = messages[flow - 1].hops if flow > 0 else 0
    if begin == messages[flow].hops:
        return True
    state.has_matched = 1
    if state.ends < 0:
        return False
    recv, link = sim.tasks[sim.tasks[row].partner], sim.links[sim.tasks[row].link]
    last = link.last if link.offload > 0 else link.o
    recv.end = max(recv.end, state.ends + state.flight + last)
    return True


@inlined
def next_flow(runs: Records, flows: Flows, place: int) -> int:
    """Process events of flows before the next other event; return a flow that ended, or -1."""
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
                flows.states[flow].begins = now
                enter(traffic, flow)
                add(traffic, flow, np.inf)
        share(traffic, now)
    counters[_NEXT] += 1
    return int(flows.ended[counters[_NEXT] - 1])
