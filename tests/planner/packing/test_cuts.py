"""Tests of exact cut bounds, against all cuts of small fabrics."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from collplan.planner.packing.cuts import cut_graph, scattering_bound, spreading_bound
from collplan.planner.topology import fabric_of
from linked_machines import random_fabric, torus


def graph_of(machine):
    return cut_graph(machine, fabric_of(machine))


def by_all_cuts(graph, n_bytes, is_cut):
    """Return the greatest time of all sets of vertices for which `is_cut` holds of the nodes."""
    # Adapters of nodes are on the side of the node, as links to them have no limit.
    best, n = 0.0, graph.n_nodes
    owner = np.arange(graph.n_vertices)
    for one, other in zip(graph.tail, graph.head, strict=True):
        if one < n:
            owner[other] = one
    free = [v for v in range(graph.n_vertices) if owner[v] == v]
    for sides in product((False, True), repeat=len(free)):
        inside = np.zeros(graph.n_vertices, dtype=bool)
        inside[free] = sides
        inside = inside[owner]
        rate = graph.rate_out(inside)
        if is_cut(inside[:n]) and rate > 0:
            best = max(best, n_bytes[inside[:n]].sum() / rate)
    return best


@pytest.mark.parametrize("block", range(10))
def test_bounds_are_those_of_all_cuts(block):
    for seed in range(50 * block, 50 * block + 50):
        machine = random_fabric(seed)
        graph, rng = graph_of(machine), np.random.default_rng(seed)
        n_bytes = rng.integers(0, 100, machine.nodes).astype(np.float64)
        n_bytes[0] += 1
        expected = by_all_cuts(graph, n_bytes, lambda nodes: not nodes.all())
        assert spreading_bound(graph, n_bytes).ns == pytest.approx(expected, rel=1e-9)
        root = int(rng.integers(machine.nodes))
        parts = np.where(np.arange(machine.nodes) == root, 0.0, n_bytes)
        expected = by_all_cuts(graph.reversed(), parts, lambda nodes, at=root: not nodes[at])
        assert scattering_bound(graph, n_bytes, root).ns == pytest.approx(expected, rel=1e-9)


def test_the_cut_of_a_grid_is_its_corner():
    machine = torus(4, 4, wrap=False)
    found = spreading_bound(graph_of(machine), np.full(16, 100.0))
    assert found.ns == pytest.approx(15 * 100 / 2)
    assert found.inside[:16].sum() == 15
    assert set(np.flatnonzero(~found.inside[:16])) <= {0, 3, 12, 15}


def test_nothing_to_move_takes_no_time():
    graph = graph_of(torus(3))
    assert spreading_bound(graph, np.zeros(3)).ns == 0.0
    assert scattering_bound(graph, np.array([5.0, 0.0, 0.0]), 0).ns == 0.0
