"""Run a task graph on lanes and cores, greedily: in which order do nodes begin?"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.compiled import compiled
from planner.passes.message_graph import COMPLETION, FOLLOWS, START, Ints, MessageGraph


@dataclass(frozen=True, eq=False, slots=True)
class Servers:
    """What nodes need, and for how long.

    Parameters
    ----------
    sender : ndarray of int64, shape (n_tasks,)
        The server every node waits for: one node begins at a time.
    receiver : ndarray of int64, shape (n_tasks,)
        For messages, the server that takes them in as they come; else -1.
    duration : ndarray of int64, shape (n_tasks,)
        How long both are taken, at least 1.
    n_servers : int
    """

    sender: Ints
    receiver: Ints
    duration: Ints
    n_servers: int

    @classmethod
    def only_one(cls, n_tasks: int) -> Servers:
        """Return one server for all: nodes begin one after another."""
        one = np.zeros(n_tasks, dtype=np.int64)
        return cls(sender=one, receiver=one - 1, duration=one + 1, n_servers=1)


def begin_order(graph: MessageGraph, servers: Servers, key: Ints) -> Ints:
    """Return the order in which nodes begin where every server takes the first by key.

    Parameters
    ----------
    graph : MessageGraph
        Edges that only follow are not waited for.
    servers : Servers
    key : ndarray of int64, shape (n_tasks,)
        Of the nodes that wait for a server the least goes first, ties by row.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
        The place of every node among all; of other rows -1.

    Raises
    ------
    AlgorithmError
        Where edges form a circle.
    """
    by_key = graph.nodes[np.argsort(key[graph.nodes], kind="stable")]
    place = np.zeros(len(key), dtype=np.int32)
    place[by_key] = np.arange(len(by_key), dtype=np.int32)
    begun = _begin_order(
        graph.indptr,
        graph.after,
        graph.edge,
        by_key,
        place,
        servers.sender,
        servers.receiver,
        servers.duration,
        servers.n_servers,
    )
    graph.require_all(begun >= 0)
    return np.asarray(begun)


_FIRST, _LENGTH, _HAS_TURN, _FREE, _TAKEN = range(5)
"""A server: where its line begins and how long it is; whether it has a turn coming; until when it
is busy with what it begins, and with what it takes in."""


@compiled
def _begin_order(
    indptr: Ints,
    after: Ints,
    edge: Ints,
    by_key: Ints,
    place: Ints,
    sender: Ints,
    receiver: Ints,
    duration: Ints,
    n_servers: int,
) -> Any:
    """Run everything event by event.

    Events are ``(time, row)`` for a completion, ``(time, n + server)`` for a
    server's turn; so at one time completions come first, and all that is ready
    then competes for the turn.
    """
    n = len(indptr) - 1
    waiting = np.zeros(n, np.int32)
    servers = np.zeros((n_servers + 1, 5), np.int64)
    for node in by_key:
        servers[sender[node] + 1, _FIRST] += 1
        for j in range(indptr[node], indptr[node + 1]):
            waiting[after[j]] += edge[j] != FOLLOWS
    servers[:, _FIRST] = np.cumsum(servers[:, _FIRST])
    line = np.empty(len(by_key), np.int32)
    events = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for node in by_key:
        if waiting[node] == 0:
            _line_up(line, servers[sender[node]], events, place[node], 0, n + sender[node])
    begun = np.full(n, -1, np.int64)
    n_begun = 0
    while events:
        now, node = heapq.heappop(events)
        awaited = COMPLETION
        if node >= n:
            turn, server = node, servers[node - n]
            node = by_key[_take_first(line, server)]
            begun[node] = n_begun
            n_begun += 1
            server[_FREE] = end = now + duration[node]
            if server[_HAS_TURN]:
                heapq.heappush(events, (end, turn))
            if receiver[node] >= 0:
                target = servers[receiver[node]]
                target[_TAKEN] = end = max(now, target[_TAKEN]) + duration[node]
            heapq.heappush(events, (end, np.int64(node)))
            awaited = START
        for j in range(indptr[node], indptr[node + 1]):
            other = after[j]
            if edge[j] == awaited:
                waiting[other] -= 1
                if waiting[other] == 0:
                    turn = n + sender[other]
                    _line_up(line, servers[sender[other]], events, place[other], now, turn)
    return begun


@compiled
def _line_up(line: Ints, server: Ints, events: Any, place: int, now: int, turn: int) -> None:
    """Let a node wait for its server, which gets a turn if it has none."""
    _push(line, server[_FIRST], server[_LENGTH], place)
    server[_LENGTH] += 1
    if not server[_HAS_TURN]:
        server[_HAS_TURN] = 1
        heapq.heappush(events, (max(np.int64(now), server[_FREE]), np.int64(turn)))


@compiled
def _take_first(line: Ints, server: Ints) -> Any:
    """Take the first node by key out of a server's line."""
    place = _pop(line, server[_FIRST], server[_LENGTH])
    server[_LENGTH] -= 1
    server[_HAS_TURN] = server[_LENGTH] > 0
    return place


@compiled
def _push(heap: Ints, first: int, length: int, value: int) -> None:
    """Add a value to the heap of `length` values from `first` on."""
    i = length
    while i > 0 and heap[first + (i - 1) // 2] > value:
        heap[first + i] = heap[first + (i - 1) // 2]
        i = (i - 1) // 2
    heap[first + i] = value


@compiled
def _pop(heap: Ints, first: int, length: int) -> Any:
    """Take the least value out of the heap of `length` values from `first` on."""
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
