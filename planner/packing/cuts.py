"""Exact lower bounds on the time of bytes that must cross cuts of a fabric.

A cut separates a set S of nodes and switches from all others. If b(S) bytes must leave S, and the
links out of S carry c(S) bytes per ns together, then every schedule takes b(S) / c(S) ns. The bound
is the greatest of these over all sets. It is found without listing sets: for a guess T, the sets
with b(S) > T c(S) are minimum cuts of a flow network, and such a set gives the next guess, until
there is none (Dinkelbach's method; Zhao et al., *ForestColl*, 2024, for allgather).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints
from collplan.planner.packing.link_ends import link_ends
from collplan.planner.packing.max_flow import FlowGraph, MovingFlow
from collplan.planner.topology import Fabric
from collplan.specs.machines.machine import Machine


@dataclass(frozen=True, eq=False)
class CutGraph:
    """Nodes and switches, and the links between them.

    Parameters
    ----------
    tail, head : ndarray of int64, shape (n_arcs,)
        Vertices where every link begins and ends. Vertices 0 to n_nodes - 1 are nodes.
    rate : ndarray of float64, shape (n_arcs,)
        Rate of every link in bytes per ns.
    n_nodes, n_vertices : int
    """

    tail: Ints
    head: Ints
    rate: Floats
    n_nodes: int
    n_vertices: int

    @property
    def is_lane(self) -> Bools:
        """Return whether each link is one between a node and its adapter."""
        return (self.tail < self.n_nodes) | (self.head < self.n_nodes)

    def reversed(self) -> CutGraph:
        """Return the graph with all links turned around."""
        return CutGraph(self.head, self.tail, self.rate, self.n_nodes, self.n_vertices)

    def rate_out(self, inside: Bools) -> float:
        """Return the rate of all links out of a set of vertices."""
        return float(self.rate[inside[self.tail] & ~inside[self.head]].sum())


@dataclass(frozen=True, eq=False)
class CutBound:
    """The greatest time of any cut.

    Parameters
    ----------
    ns : float
        Time in ns.
    inside : ndarray of bool, shape (n_vertices,)
        Vertices of the cut's set, which bytes leave.
    """

    ns: float
    inside: Bools


def sums_of(key: Ints, values: Floats, n_keys: int) -> Floats:
    """Return the sum of the values of every key from 0 to `n_keys` - 1."""
    return np.bincount(key, values, minlength=n_keys).astype(np.float64)


def cut_graph(machine: Machine, fabric: Fabric) -> CutGraph | None:
    """Return the nodes, switches and links of a machine; None if links do not state their ends.

    A node has a link in each direction to its adapter on every lane, with the rate of the lane.
    """
    ends = link_ends(fabric)
    if ends is None:
        return None
    n, k = machine.nodes, machine.n_lanes
    adapters = ends.host[:, fabric.node_host].T.ravel() + n
    nodes = np.repeat(np.arange(n), k)
    per_byte = machine.network.network.G_ns_per_byte * np.array(machine.lane_slowness)
    with np.errstate(divide="ignore"):
        lane_rate = np.tile(np.where(per_byte > 0, 1 / per_byte, np.inf), n)
    rate = np.concatenate((lane_rate, lane_rate, fabric.bandwidth / 1e9))
    # A lane without a limit carries what all links together carry.
    rate[np.isinf(rate)] = fabric.bandwidth.sum() / 1e9
    return CutGraph(
        np.concatenate((nodes, adapters, ends.tail + n)),
        np.concatenate((adapters, nodes, ends.head + n)),
        rate,
        n,
        ends.n_vertices + n,
    )


def spreading_bound(graph: CutGraph, n_bytes: Floats) -> CutBound:
    """Return the bound for bytes of each node that all other nodes need.

    Parameters
    ----------
    graph : CutGraph
    n_bytes : ndarray of float64, shape (n_nodes,)
        Bytes of every node, as in an allgather. A broadcast has bytes at one node.

    Returns
    -------
    CutBound
        Greatest b(S) / c(S) of the sets S without at least one node.
    """
    return _greatest(graph, n_bytes, _neighbors_in_turn(graph))


def scattering_bound(graph: CutGraph, n_bytes: Floats, root: int) -> CutBound:
    """Return the bound for bytes of the root of which every node needs its own part.

    Parameters
    ----------
    graph : CutGraph
    n_bytes : ndarray of float64, shape (n_nodes,)
        Bytes that every node needs.
    root : int
    """
    parts = n_bytes.copy()
    parts[root] = 0.0
    # Turned around, the nodes of a set have their parts for the root.
    found = _greatest(graph.reversed(), parts, [root])
    return CutBound(found.ns, ~found.inside)


def _neighbors_in_turn(graph: CutGraph) -> list[int]:
    """Return all nodes, near ones after each other."""
    after: list[list[int]] = [[] for _ in range(graph.n_vertices)]
    for one, other in zip(graph.tail.tolist(), graph.head.tolist(), strict=True):
        after[one].append(other)
    found, todo = dict[int, None](), [0]
    while todo:
        vertex = todo.pop()
        if vertex not in found:
            found[vertex] = None
            todo += after[vertex]
    return [vertex for vertex in found if vertex < graph.n_nodes]


def _greatest(graph: CutGraph, n_bytes: Floats, sinks: list[int]) -> CutBound:
    """Return the greatest b(S) / c(S) of the sets S that do not contain one of `sinks`."""
    best, total = _around_one(graph, n_bytes, sinks), float(n_bytes.sum())
    if best.ns == 0.0:
        return best
    source, owners = graph.n_vertices, np.flatnonzero(n_bytes)
    tail = np.concatenate((graph.tail, np.full(len(owners), source)))
    head = np.concatenate((graph.head, owners))
    flow_graph = FlowGraph.of(tail, head, graph.n_vertices + 1)
    rate = np.concatenate((graph.rate, np.zeros(len(owners))))
    own = np.concatenate((np.zeros(len(graph.rate)), n_bytes[owners]))
    flow = MovingFlow(flow_graph, rate * best.ns + own, source, total)
    for sink in sinks:
        while (reached := flow.lead_to(sink)) is not None:
            inside = reached[:-1]
            ns = _time_of(graph, n_bytes, inside)
            if ns <= best.ns * (1 + 1e-12):
                flow.settle(sink)
                break
            flow.widen(rate * (ns - best.ns))
            best = CutBound(ns, inside)
    return best


def _around_one(graph: CutGraph, n_bytes: Floats, sinks: list[int]) -> CutBound:
    """Return the greatest b(S) / c(S) of the sets of all vertices but one of `sinks`."""
    into = sums_of(graph.head, graph.rate, graph.n_vertices)[sinks]
    needed = n_bytes.sum() - n_bytes[sinks]
    inside = np.ones(graph.n_vertices, dtype=bool)
    which = int(np.argmax(needed / into))
    inside[sinks[which]] = False
    return CutBound(_time_of(graph, n_bytes, inside), inside)


def _time_of(graph: CutGraph, n_bytes: Floats, inside: Bools) -> float:
    rate = graph.rate_out(inside)
    leaving = float(n_bytes[inside[: graph.n_nodes]].sum())
    return leaving / rate if leaving and rate else 0.0
