"""Maximum flows and minimum cuts, by Dinic's algorithm."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.machine_code.kernel import compiled, inner

_SURE: Final = 1 - 1e-9
"""Ratio by which a flow must fall short of its bytes, in view of rounding errors."""


class FlowGraph(NamedTuple):
    """A directed graph in which arc ``e ^ 1`` is the reverse of arc e.

    Parameters
    ----------
    head : ndarray of int64, shape (n_arcs,)
        Vertex where every arc ends.
    begin, arcs : ndarray of int64
        Arcs that leave every vertex, in CSR form.
    """

    head: Ints
    begin: Ints
    arcs: Ints

    @classmethod
    def of(cls, tail: Ints, head: Ints, n_vertices: int) -> FlowGraph:
        """Return the graph of arcs, each followed by its reverse."""
        heads = np.stack((head, tail), axis=1).ravel()
        tails = np.stack((tail, head), axis=1).ravel()
        arcs, begin = csr.group_by(tails, n_vertices)
        return cls(heads.astype(np.int64), begin, arcs)


class MovingFlow:
    """A flow of bytes from their owners to one vertex, which can be led to another vertex.

    Parameters
    ----------
    graph : FlowGraph
        Graph with one more vertex, from which arcs lead to the owners of bytes.
    capacity : ndarray of float64, shape (n_arcs / 2,)
        Capacity of every arc that is no reverse.
    source : int
        The additional vertex.
    total : float
        Number of bytes.
    """

    def __init__(self, graph: FlowGraph, capacity: Floats, source: int, total: float) -> None:
        self.graph, self.at, self.total = graph, source, total
        self._left = np.zeros(2 * len(capacity))
        self._left[::2] = capacity
        self._moved = 0.0

    def widen(self, more: Floats) -> None:
        """Add to the capacities of arcs, shape (n_arcs / 2,)."""
        self._left[::2] += more

    def lead_to(self, sink: int) -> Bools | None:
        """Lead all bytes to another vertex, as far as capacities permit.

        Returns
        -------
        ndarray of bool, shape (n_vertices,), or None
            If some bytes cannot reach the vertex: the vertices that they reach, a minimum cut.
            Another call then continues. None if the flow now ends at the vertex.
        """
        level = np.zeros(len(self.graph.begin) - 1, dtype=np.int64)
        missing = self.total - self._moved
        scale = self.total * 1e-12
        self._moved += _maximize(self.graph, self._left, self.at, sink, missing, scale, level)
        if self._moved < self.total * _SURE:
            return np.asarray(level >= 0)
        self.settle(sink)
        return None

    def settle(self, sink: int) -> None:
        """Take the flow to end at a vertex, although rounding errors may keep some bytes back."""
        self.at, self._moved = sink, 0.0


@compiled
def _maximize(
    graph: FlowGraph,
    left: Floats,
    source: int,
    sink: int,
    enough: float,
    least: float,
    level: Ints,
) -> float:
    """Subtract a maximum flow, of at most `enough`, from the capacities, and return its value.

    Capacities up to `least` count as none. `level` is -1 for the vertices that were not reached
    when the search ended.
    """
    n = len(level)
    queue, way, at = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    total = 0.0
    while enough - total > least and _find_levels(graph, left, source, sink, level, queue, least):
        for vertex in range(n):
            at[vertex] = graph.begin[vertex]
        depth, vertex = 0, source
        while depth >= 0:
            if vertex == sink:
                most = enough - total
                for i in range(depth):
                    most = min(most, left[way[i]])
                total += most
                if enough - total <= least:
                    for i in range(depth):
                        left[way[i]] -= most
                        left[way[i] ^ 1] += most
                    return total
                keep = depth
                for i in range(depth - 1, -1, -1):
                    left[way[i]] -= most
                    left[way[i] ^ 1] += most
                    if left[way[i]] <= least:
                        keep = i
                depth = keep
                vertex = graph.head[way[depth] ^ 1]
                continue
            found = False
            while at[vertex] < graph.begin[vertex + 1]:
                arc = graph.arcs[at[vertex]]
                if left[arc] > least and level[graph.head[arc]] == level[vertex] + 1:
                    found = True
                    break
                at[vertex] += 1
            if found:
                way[depth] = graph.arcs[at[vertex]]
                vertex = graph.head[way[depth]]
                depth += 1
                continue
            depth -= 1
            if depth >= 0:
                vertex = graph.head[way[depth] ^ 1]
                at[vertex] += 1
    return total


@inner
def _find_levels(
    graph: FlowGraph, left: Floats, source: int, sink: int, level: Ints, queue: Ints, least: float
) -> bool:
    """Write the distance of every vertex from the source, and return whether the sink has one."""
    for vertex in range(len(level)):
        level[vertex] = -1
    level[source] = 0
    queue[0] = source
    n_done, n_known = 0, 1
    while n_done < n_known:
        vertex = queue[n_done]
        n_done += 1
        for i in range(graph.begin[vertex], graph.begin[vertex + 1]):
            arc = graph.arcs[i]
            if left[arc] > least and level[graph.head[arc]] < 0:
                level[graph.head[arc]] = level[vertex] + 1
                queue[n_known] = graph.head[arc]
                n_known += 1
    return bool(level[sink] >= 0)
