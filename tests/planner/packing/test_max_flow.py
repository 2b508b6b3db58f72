"""Tests of maximum flows, against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from collplan.planner.packing.max_flow import FlowGraph, MovingFlow


def test_a_flow_that_is_led_on_is_a_maximum_flow_to_every_vertex():
    rng = np.random.default_rng(3)
    for _ in range(60):
        n = int(rng.integers(2, 9))
        n_arcs = int(rng.integers(1, 4 * n))
        tail, head = rng.integers(0, n, (2, n_arcs))
        rate = rng.integers(1, 9, n_arcs).astype(np.float64)
        owned = rng.integers(0, 5, n).astype(np.float64)
        owned[0] += 1
        graph = nx.DiGraph()
        graph.add_nodes_from(range(n + 1))
        for one, other, width in zip(tail.tolist(), head.tolist(), rate, strict=True):
            known = graph.get_edge_data(one, other, {"capacity": 0.0})["capacity"]
            graph.add_edge(one, other, capacity=known + width)
        for vertex, width in enumerate(owned):
            graph.add_edge(n, vertex, capacity=width)
        arcs = np.concatenate((tail, np.full(n, n))), np.concatenate((head, np.arange(n)))
        capacity = np.concatenate((rate, owned))
        total = float(owned.sum())
        flow = MovingFlow(FlowGraph.of(*arcs, n + 1), capacity, n, total)
        for sink in rng.permutation(n).tolist():
            most = nx.maximum_flow_value(graph, n, sink)
            reached = flow.lead_to(sink)
            assert (reached is None) == (most == pytest.approx(total))
            if reached is not None:
                inside = {vertex for vertex in range(n + 1) if reached[vertex] or vertex == n}
                assert sink not in inside
                cut = sum(
                    data["capacity"]
                    for one, other, data in graph.edges(data=True)
                    if one in inside and other not in inside
                )
                assert cut == pytest.approx(most)
                break
