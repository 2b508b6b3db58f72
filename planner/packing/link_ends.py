"""Vertices at the ends of the links of a fabric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.topology import Fabric
from collplan.planner.topology.links import HOST


@dataclass(frozen=True, eq=False)
class LinkEnds:
    """Vertices at the ends of all links.

    If lanes do not share links, each lane has vertices of its own.

    Parameters
    ----------
    tail, head : ndarray of int64, shape (n_links,)
        Vertices where every link begins and ends.
    host : ndarray of int64, shape (n_lanes, n_hosts)
        Vertex of every host's adapter on every lane.
    n_vertices : int
        Number of vertices.
    """

    tail: Ints
    head: Ints
    host: Ints
    n_vertices: int


@lru_cache(maxsize=8)
def link_ends(fabric: Fabric) -> LinkEnds | None:
    """Return the vertices at the ends of all links, or None if the topology does not state them."""
    if fabric.plane.ends is None:
        return None
    names = fabric.topology.host_names or [f"host {i}" for i in range(fabric.n_hosts)]
    is_host = set(names)
    numbers: dict[tuple[int, str], int] = {}
    has_shared_hosts = fabric.is_shared and not bool((fabric.link_class == HOST).any())

    def vertex(lane: int, name: str) -> int:
        is_common = fabric.is_shared and (has_shared_hosts or name not in is_host)
        return numbers.setdefault((0 if is_common else lane, name), len(numbers))

    lanes = range(fabric.n_lanes)
    host = np.array([[vertex(lane, name) for name in names] for lane in lanes], dtype=np.int64)
    ends = np.empty((fabric.n_links, 2), dtype=np.int64)
    for link in range(fabric.n_links):
        lane, place = fabric.origin(link)
        one, other = fabric.plane.ends(place)
        ends[link] = vertex(lane, one), vertex(lane, other)
    return LinkEnds(ends[:, 0].copy(), ends[:, 1].copy(), host, len(numbers))
