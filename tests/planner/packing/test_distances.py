"""Tests of shortest distances."""

from __future__ import annotations

import networkx as nx
import numpy as np

from collplan.planner.packing.distances import distances


def test_distances_are_those_of_networkx():
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 9):
        graph = nx.gnp_random_graph(n, 0.4, seed=n, directed=True)
        for _, _, data in graph.edges(data=True):
            data["weight"] = float(rng.integers(1, 9))
        arcs = list(graph.edges(data="weight"))
        tail, head = (np.array([arc[i] for arc in arcs], dtype=np.int64) for i in (0, 1))
        found = distances(tail, head, np.array([arc[2] for arc in arcs], dtype=float), n)
        known = dict(nx.all_pairs_dijkstra_path_length(graph))
        for one in range(n):
            for other in range(n):
                assert found[one, other] == known[one].get(other, np.inf)
