"""Shortest distances between all pairs of vertices."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Floats, Ints


def distances(tail: Ints, head: Ints, length: Floats, n_vertices: int) -> Floats:
    """Return the length of the shortest path between any two vertices, by Floyd's algorithm.

    Parameters
    ----------
    tail, head : ndarray of int64, shape (n_arcs,)
        Vertices where every arc begins and ends.
    length : ndarray of float64, shape (n_arcs,)
    n_vertices : int

    Returns
    -------
    ndarray of float64, shape (n_vertices, n_vertices)
        Infinite if there is no path.

    Examples
    --------
    >>> distances(np.array([0, 1]), np.array([1, 2]), np.array([2.0, 3.0]), 3).tolist()
    [[0.0, 2.0, 5.0], [inf, 0.0, 3.0], [inf, inf, 0.0]]
    """
    found = np.full((n_vertices, n_vertices), np.inf)
    np.minimum.at(found, (tail, head), length)
    found[np.arange(n_vertices), np.arange(n_vertices)] = 0.0
    for via in range(n_vertices):
        np.minimum(found, found[:, via : via + 1] + found[via], out=found)
    return found
