"""Lower bounds on the time of a collective's bytes over the links of a topology."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.collective.edges import blocks_between
from collplan.planner.packing.cuts import (
    CutBound,
    CutGraph,
    cut_graph,
    scattering_bound,
    spreading_bound,
    sums_of,
)
from collplan.planner.packing.dissemination import Hops
from collplan.planner.packing.distances import distances
from collplan.planner.packing.routing import balanced_ways, prices_of
from collplan.planner.topology import fabric_of
from collplan.specs.collectives.collective import Collective
from collplan.specs.machines.machine import Machine

MOST_NODES: Final = 1024
"""Greatest number of nodes for which cuts are searched."""
MOST_PRICED: Final = 96
"""Greatest number of nodes for which the links of an alltoall get prices by their loads."""
N_PRICED: Final = 3
"""Number of times that ways are chosen before prices are taken."""


@lru_cache(maxsize=64)
def cut_bound(machine: Machine, collective: Collective) -> tuple[float, str] | None:
    """Return the time that the bytes of a collective take over the links of a topology.

    Every plan takes this time, whatever its routes.

    Parameters
    ----------
    machine : Machine
    collective : Collective

    Returns
    -------
    ns : float
        Time in ns.
    what : str
        A plural noun phrase for the bytes that take this time.

    None is returned without a topology whose links state their ends, for more than `MOST_NODES`
    nodes, and for collectives without such a bound.
    """
    fabric = fabric_of(machine)
    if fabric is None or not 1 < machine.nodes <= MOST_NODES or not collective.has_data:
        return None
    graph = cut_graph(machine, fabric)
    if graph is None:
        return None
    node = np.array(machine.rank_to_node)
    n_ranks, size = machine.n_ranks, collective.itemsize
    kind = collective.planned_kind
    edges = collective.edge_layout(n_ranks)
    if edges is not None:
        outer = blocks_between(edges, node)
        if not outer.is_first.all():
            return None  # nodes may forward a block that several others receive
        pairs = np.zeros((machine.nodes, machine.nodes))
        np.add.at(pairs, (outer.source, outer.dest), outer.counts)
        return _pairs_bound(graph, pairs * size)
    if collective.is_pairwise:
        return _pairs_bound(graph, _node_pairs(collective, node, machine.nodes) * size)
    root = None if collective.root is None else int(node[collective.root])
    if kind in ("bcast", "reduce", "allreduce"):
        return _vector_bound(graph, kind, float(collective.count * size), root)
    if kind not in ("allgather", "reduce_scatter_block", "reduce_scatter", "gather", "scatter"):
        return None
    blocks = np.asarray(collective.block_layout(n_ranks)[0], dtype=np.float64) * size
    n_bytes = sums_of(node, blocks, machine.nodes)
    if kind in ("gather", "scatter"):
        assert root is not None
        ends = graph.reversed() if kind == "gather" else graph
        return _described(scattering_bound(ends, n_bytes, root), graph, n_bytes)
    is_turned = kind != "allgather"
    found = spreading_bound(graph.reversed() if is_turned else graph, n_bytes)
    if is_turned:
        found = replace(found, inside=~found.inside)
    return _described(found, graph, n_bytes)


def _vector_bound(
    graph: CutGraph, kind: str, n_bytes: float, root: int | None
) -> tuple[float, str]:
    """Return the bound of a broadcast, a reduction or an allreduce of a vector."""
    at = root or 0
    own = np.zeros(graph.n_nodes)
    own[at] = n_bytes
    found = []
    if kind != "reduce":
        found.append(spreading_bound(graph, own))
    if kind != "bcast":
        turned = spreading_bound(graph.reversed(), own)
        found.append(replace(turned, inside=~turned.inside))
    most = max(found, key=lambda one: one.ns)
    # Every set of nodes that is cut off has a part of the vector's operands, or needs the result.
    result = most.ns, f"{n_bytes:.0f} B {_where(most, graph)}"
    if kind != "allreduce":
        return result
    # Gathering the operands of an element and spreading its result take p - 1 messages each.
    into = sums_of(graph.head, graph.rate, graph.n_vertices)
    rate = np.minimum(into[: graph.n_nodes], _rate_into_adapters(graph, into)).sum()
    total = 2 * (graph.n_nodes - 1) * n_bytes
    both = total / rate, f"{total:.0f} B into all nodes"
    return max(result, both)


def _rate_into_adapters(graph: CutGraph, into: Floats) -> Floats:
    """Return the rate of the links into the adapters of every node, apart from its own."""
    is_own = graph.tail < graph.n_nodes
    node, adapter = graph.tail[is_own], graph.head[is_own]
    others = into - sums_of(adapter, graph.rate[is_own], graph.n_vertices)
    return sums_of(node, others[adapter], graph.n_nodes)


def _node_pairs(collective: Collective, node: Ints, n_nodes: int) -> Floats:
    """Return the elements that every node has for every other node."""
    layout = collective.pair_layout(len(node))
    if layout is None:
        n_ranks = np.bincount(node, minlength=n_nodes).astype(np.float64)
        pairs = np.outer(n_ranks, n_ranks) * collective.count
    else:
        pairs = np.zeros((n_nodes, n_nodes))
        np.add.at(pairs, (node[:, None], node[None, :]), layout[0])
    np.fill_diagonal(pairs, 0.0)
    return pairs


def _pairs_bound(graph: CutGraph, n_bytes: Floats) -> tuple[float, str]:
    """Return the bound of an alltoall.

    If every link has a length, bytes times the lengths of their shortest paths are at most the sum
    of the bytes that links can carry, times the links' lengths. This holds for any lengths, and
    for the best ones the bound is exact (the dual of concurrent flow). Lengths are the times of a
    byte, and the prices of `routing` for balanced ways.
    """
    byte_ns = 1 / graph.rate
    lengths = [byte_ns, np.where(graph.is_lane, 0.0, byte_ns)]
    if graph.n_nodes <= MOST_PRICED:
        lengths.append(_prices(graph, byte_ns))
    best, n_nodes = 0.0, graph.n_nodes
    for length in lengths:
        far = distances(graph.tail, graph.head, length, graph.n_vertices)[:n_nodes, :n_nodes]
        needed = float((n_bytes * np.where(n_bytes > 0, far, 0.0)).sum())
        best = max(best, needed / float((graph.rate * length).sum()))
    return best, f"{n_bytes.sum():.0f} B between all nodes"


def _prices(graph: CutGraph, byte_ns: Floats) -> Floats:
    """Return the prices of links that carry as many bytes between every two nodes."""
    order = np.argsort(graph.tail, kind="stable")
    tail, head, busy = graph.tail[order], graph.head[order], byte_ns[order]
    n_arcs = len(order)
    hops = Hops(
        tail,
        head,
        np.searchsorted(tail, np.arange(graph.n_vertices + 1)),
        np.arange(n_arcs + 1),
        np.arange(n_arcs),
        busy,
        busy,
        busy,
    )
    one, other = np.divmod(np.arange(graph.n_nodes**2), graph.n_nodes)
    _, _, load = balanced_ways(hops, one, other, N_PRICED, 0)
    prices = np.empty(n_arcs)
    prices[order] = prices_of(load, busy)
    return prices


def _described(found: CutBound, graph: CutGraph, n_bytes: Floats) -> tuple[float, str]:
    """Return the time of a cut, and what crosses it."""
    total = found.ns * graph.rate_out(found.inside)
    return found.ns, f"{total:.0f} B {_where(found, graph)}"


def _where(found: CutBound, graph: CutGraph) -> str:
    """Return which nodes bytes must leave or enter."""
    inside = found.inside[: graph.n_nodes]
    nodes, others = np.flatnonzero(inside), np.flatnonzero(~inside)
    if len(others) == 1:
        return f"into node {others[0]}"
    if len(nodes) == 1:
        return f"out of node {nodes[0]}"
    return f"out of {len(nodes)} of {graph.n_nodes} nodes"
