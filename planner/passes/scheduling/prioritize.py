"""Priorities of tasks: the order in which they would begin, with long paths first."""

from __future__ import annotations

import heapq
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import (
    COMPLETION,
    FOLLOWS,
    START,
    MessageGraph,
    previous_on_link,
    require_all_ranks,
)
from collplan.planner.plan.plan import Op, Plan

REMOTE: Final = 64
"""Duration of a message to another node, in the same unit as `LOCAL` and `STEP`."""
LOCAL: Final = 4
"""Duration of a message within a node."""
STEP: Final = 2
"""Duration of a copy, a reduction or a computation."""
SEGMENTS: Final = 4
"""Number of segments on one link that make a path as long as one message."""
QUANTA: Final = 64
"""Number of parts of the greatest size in which sizes are measured, rounded up.

Therefore a last, shorter segment changes little.
"""
SLOTS: Final = (2, 3, 1)
"""Messages to other nodes, messages within the node, and steps that a rank can have in progress."""


@register_pass(
    "prioritize",
    level="plan",
    locality="global",
    takes_folded=True,
    needs="messages whose order is not its own already",
)
def prioritize(plan: Plan) -> Plan:
    """Put all tasks into the order in which they would begin, longest paths first.

    The order is written to the `priority` column; both ends of a message have the same place. It
    is the result of list scheduling: a lane carries one message at a time at either end, and a
    rank has a few messages in flight, as with `limit_requests`. Of the ready tasks, a rank begins
    the one with the longest path to the end, or of equal ones the first row. Ranks that begin tasks
    at the same time take turns: the first rank of every node, then the second, and so on. So nodes
    that do the same get the same order, as in a folded plan. Messages between two
    ranks of different nodes also form a path in the order of rows, because they share a link.
    Therefore parallel messages advance evenly, segment by segment, and a ring computes first what
    it needs first.

    Durations are the same for all machines: `REMOTE`, `LOCAL` or `STEP` times the size. The
    length of a path is the number of its messages.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if it already has these priorities.

    Raises
    ------
    AlgorithmError
        If the plan is one rank's program, or tasks wait for the start of
        others such that they cannot run one after another.

    Notes
    -----
    A message begins when the predecessors of both ends have completed. Therefore the order is a
    topological order of the graph in which the ends of a message are one node, and tasks and
    messages can run one after another in this order. Edges along it, as `limit_requests` adds
    them, cannot cause a deadlock.

    Time and memory are linear, except for a logarithmic factor of the queues.

    References
    ----------
    R. L. Graham: Bounds on multiprocessing timing anomalies, SIAM J. Appl.
    Math. 1969 (list scheduling); T. C. Hu: Parallel sequencing and assembly
    line problems, Oper. Res. 1961 (longest path first).
    """
    require_all_ranks(plan, "prioritize")
    weight = _weights(plan)
    part = np.maximum(1, weight // SEGMENTS)
    try:
        graph = MessageGraph.of(plan, previous_on_link(plan))
        length = graph.longest_paths(weight, part)
    except AlgorithmError:
        # In an imported schedule, messages on a link may have another order than the rows.
        graph = MessageGraph.of(plan)
        length = graph.longest_paths(weight, part)
    place = begin_order(graph, _servers(plan, weight), -length)
    priority = place[graph.node].astype(np.int32)
    return plan if np.array_equal(priority, plan.priority) else plan.replace(priority=priority)


def serial_order(plan: Plan) -> Ints:
    """Return an order in which a plan's messages and local tasks can run one after another.

    It is the order of priorities and rows if tasks can run in it, as after `prioritize`.
    Otherwise, of the tasks that can come next, the first row is always taken; a message has the
    row of its later end.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
        Place of every task; both ends of a message have the same place.

    Raises
    ------
    AlgorithmError
        If tasks wait for the start of others such that there is no order.
    """
    graph = MessageGraph.of(plan)
    place: Ints = np.zeros(plan.n_tasks, dtype=np.int64)
    order = np.argsort(plan.priority[graph.nodes], kind="stable")
    place[graph.nodes[order]] = np.arange(len(order))
    if not graph.is_order(place):
        later_end = np.arange(plan.n_tasks)
        np.maximum.at(later_end, graph.node, np.arange(plan.n_tasks))
        place = begin_order(graph, Servers.only_one(plan.n_tasks), later_end)
    return place[graph.node]


def _weights(plan: Plan) -> Ints:
    """Return the duration of every task per unit of size."""
    weight = np.where(plan.crosses, REMOTE, LOCAL)
    weight[plan.op > Op.RECV] = STEP
    return weight


def _servers(plan: Plan, weight: Ints) -> Servers:
    """Return the servers that begin tasks, and the lanes and memory that tasks occupy.

    A rank has a few messages to other nodes in progress, and a few within its
    own node, and executes one step at a time. A message between nodes occupies its
    lane at both nodes. A message within a node occupies the memory of its two ranks.
    """
    is_message, crosses = plan.op <= Op.RECV, plan.crosses
    peer = np.where(is_message, plan.peer, plan.rank)
    here, there = plan.rank_node[plan.rank], plan.rank_node[peer]
    lane = np.maximum(plan.lane, 0).astype(np.int64)
    n_lanes = int(lane.max(initial=0)) + 1
    n_lane_ports = 2 * plan.n_nodes * n_lanes
    port_out, port_in = 2 * (here * n_lanes + lane), 2 * (there * n_lanes + lane) + 1
    memory_out, memory_in = n_lane_ports + 2 * plan.rank, n_lane_ports + 2 * peer + 1
    # Servers are numbered by the index of the rank on its node, so that all nodes take turns.
    index = csr.occurrence(plan.rank_node)
    turn = csr.inverse(np.argsort(index, kind="stable"))
    largest = max(1, int(plan.elements.max(initial=0)))
    size = np.maximum(1, -(-plan.elements * QUANTA // largest))
    return Servers(
        server=np.where(crosses, 0, np.where(is_message, 1, 2)) * plan.n_ranks + turn[plan.rank],
        port_out=np.where(crosses, port_out, np.where(is_message, memory_out, -1)),
        port_in=np.where(crosses, port_in, np.where(is_message, memory_in, -1)),
        duration=weight * size,
        n_slots=np.repeat(SLOTS, plan.n_ranks),
        n_ports=n_lane_ports + 2 * plan.n_ranks,
    )


class Servers(NamedTuple):
    """Servers and ports that nodes of the graph use, and the durations of this use.

    Parameters
    ----------
    server : ndarray of int64, shape (n_tasks,)
        Server that begins every node. A server with a free slot begins the node with the
        lowest key.
    port_out, port_in : ndarray of int64, shape (n_tasks,)
        Ports that the node occupies after its begin, -1 for none. Nodes get ports in the order
        of begins. The second port is occupied from the same time on as the first one, or from
        the time on when it is free.
    duration : ndarray of int64, shape (n_tasks,)
        Duration for which the node occupies each port, at least 1. It occupies a slot of its
        server until it has completed.
    n_slots : ndarray of int64, shape (n_servers,)
        Number of slots: nodes that a server can have in progress.
    n_ports : int
        Number of ports.
    """

    server: Ints
    port_out: Ints
    port_in: Ints
    duration: Ints
    n_slots: Ints
    n_ports: int

    @classmethod
    def only_one(cls, n_tasks: int) -> Servers:
        """Return a single server with one slot, so that nodes begin one after another."""
        zero = np.zeros(n_tasks, dtype=np.int64)
        return cls(zero, zero - 1, zero - 1, zero + 1, np.ones(1, dtype=np.int64), 0)


def begin_order(graph: MessageGraph, servers: Servers, key: Ints) -> Ints:
    """Return the order in which nodes begin if every server takes the node with the lowest key.

    Parameters
    ----------
    graph : MessageGraph
        Graph of the tasks. Nodes do not wait for edges that only follow.
    servers : Servers
    key : ndarray of int64, shape (n_tasks,)
        Key of every node. Among nodes with equal keys, the lowest row is taken first.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
        Place of every node in the order; -1 for rows that are not nodes.

    Raises
    ------
    AlgorithmError
        If edges form a cycle.
    """
    by_key = graph.nodes[np.argsort(key[graph.nodes], kind="stable")]
    place = np.zeros(len(key), dtype=np.int32)
    place[by_key] = np.arange(len(by_key), dtype=np.int32)
    graph_edges = (graph.indptr, graph.after, graph.edge)
    begun = _begin_order(*graph_edges, by_key, place, servers)
    graph.require_all(begun >= 0)
    return np.asarray(begun)


_FIRST, _LENGTH, _N_FREE, _HAS_TURN = range(4)
"""Columns of a server: begin and length of its queue, number of its free slots, and 1 if an event
for its turn exists."""


@compiled
def _begin_order(
    indptr: Ints, after: Ints, edge: Ints, by_key: Ints, place: Ints, needs: Servers
) -> Any:
    """Return the place of every node in the order of begins, by a simulation of events.

    Events are ``(time, row)`` for a completion, and ``(time, n + k * n_servers + server)`` for
    the turn of a server. Therefore completions precede turns at the same time, and all nodes
    that are ready at this time compete for the turn. The number k is 0 for a
    turn that a completion causes. A turn that another turn causes has the k of that turn plus 1,
    so that servers of all nodes have one turn before any of them has the next one.
    """
    n, server_of = len(indptr) - 1, needs.server
    waiting = np.zeros(n, np.int32)
    n_servers = len(needs.n_slots)
    servers = np.zeros((n_servers + 1, 4), np.int64)
    servers[:-1, _N_FREE] = needs.n_slots
    for node in by_key:
        servers[server_of[node] + 1, _FIRST] += 1
        for j in range(indptr[node], indptr[node + 1]):
            waiting[after[j]] += edge[j] != FOLLOWS
    for server in range(n_servers):
        servers[server + 1, _FIRST] += servers[server, _FIRST]
    free = np.zeros(needs.n_ports + 1, np.int64)
    line = np.empty(len(by_key), np.int32)
    events = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for node in by_key:
        if waiting[node] == 0:
            _line_up(line, servers[server_of[node]], place[node])
            _call(servers[server_of[node]], events, 0, n + server_of[node])
    begun = np.full(n, -1, np.int64)
    n_begun = 0
    while events:
        now, event = heapq.heappop(events)
        # `turns` is the first event of the turns that this event causes.
        if event < n:
            awaited, turns, node = COMPLETION, np.int64(n), event
            servers[server_of[node], _N_FREE] += 1
        else:
            turn = (event - n) % n_servers
            awaited, turns = START, event - turn + n_servers
            node = by_key[_take_first(line, servers[turn])]
            begun[node] = n_begun
            n_begun += 1
            heapq.heappush(events, (_occupy(needs, free, node, now), np.int64(node)))
        _call(servers[server_of[node]], events, now, turns + server_of[node])
        for j in range(indptr[node], indptr[node + 1]):
            other = after[j]
            if edge[j] == awaited:
                waiting[other] -= 1
                if waiting[other] == 0:
                    _line_up(line, servers[server_of[other]], place[other])
                    _call(servers[server_of[other]], events, now, turns + server_of[other])
    return begun


@inner
def _occupy(needs: Servers, free: Ints, node: int, now: int) -> Any:
    """Let a node occupy its ports as soon as they are free; return the time of its completion."""
    duration, port_out, port_in = needs.duration[node], needs.port_out[node], needs.port_in[node]
    if port_out < 0:
        return np.int64(now + duration)
    begin = max(now, free[port_out])
    free[port_out] = begin + duration
    free[port_in] = max(begin, free[port_in]) + duration
    return np.int64(free[port_in])


@inner
def _line_up(line: Ints, server: Ints, place: int) -> None:
    """Add a node to the queue of its server."""
    _push(line, server[_FIRST], server[_LENGTH], place)
    server[_LENGTH] += 1


@inner
def _call(server: Ints, events: Any, now: int, turn: int) -> None:
    """Add an event for the turn of a server, if it has a free slot and a waiting node."""
    if server[_LENGTH] > 0 and server[_N_FREE] > 0 and not server[_HAS_TURN]:
        server[_HAS_TURN] = 1
        heapq.heappush(events, (np.int64(now), np.int64(turn)))


@inner
def _take_first(line: Ints, server: Ints) -> Any:
    """Move the node with the lowest key from the queue of a server to a slot."""
    place = _pop(line, server[_FIRST], server[_LENGTH])
    server[_LENGTH] -= 1
    server[_N_FREE] -= 1
    server[_HAS_TURN] = 0
    return place


@inner
def _push(heap: Ints, first: int, length: int, value: int) -> None:
    """Add a value to the heap of `length` values that begins at index `first`."""
    i = length
    while i > 0 and heap[first + (i - 1) // 2] > value:
        heap[first + i] = heap[first + (i - 1) // 2]
        i = (i - 1) // 2
    heap[first + i] = value


@inner
def _pop(heap: Ints, first: int, length: int) -> Any:
    """Remove and return the least value of the heap of `length` values that begins at `first`."""
    least, value = heap[first], heap[first + length - 1]
    i, child = 0, 1
    while child < length - 1:
        if child + 1 < length - 1 and heap[first + child + 1] < heap[first + child]:
            child += 1
        if value <= heap[first + child]:
            break
        heap[first + i] = heap[first + child]
        i, child = child, 2 * child + 1
    heap[first + i] = value
    return least
