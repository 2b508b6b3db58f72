"""The fabric of a machine: all links between its adapters, and routes over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.memory import require_memory
from collplan.planner.topology.dragonfly import DragonflyRoutes
from collplan.planner.topology.fat_tree import FatTreeRoutes
from collplan.planner.topology.graph import GivenRoutes, ShortestRoutes
from collplan.planner.topology.links import HOST, LinkList
from collplan.planner.topology.torus import TorusRoutes
from collplan.specs.machines.machine import Machine
from collplan.specs.topology import Dragonfly, FatTree, Graph, Topology, Torus

_FASTEST: Final = 2.0**57
"""Maximum rate of a lane in bytes per second, for networks whose bytes take no time."""
_LINK_BYTES: Final = 64
Routes = FatTreeRoutes | DragonflyRoutes | TorusRoutes | GivenRoutes | ShortestRoutes


@dataclass(frozen=True, eq=False)
class Fabric:
    """Unidirectional links between the adapters of a machine.

    Parameters
    ----------
    topology : Topology
        Topology from which the links follow.
    n_lanes : int
        Number of lanes per node.
    is_shared : bool
        Whether all lanes share the links beyond those of hosts. Otherwise, each lane has its own
        links, starting with those of lane 0.
    node_host : ndarray of int64, shape (n_nodes,)
        Host of every node.
    plane : LinkList
        Links of one lane.
    rule : Routes
        Routes over the links of one lane.
    lane_slowness : tuple of float
        Time per byte of every lane, divided by that of the fastest lane.

    Notes
    -----
    Routes are computed on demand for the pairs of hosts that are given.
    """

    topology: Topology
    n_lanes: int
    is_shared: bool
    node_host: Ints
    plane: LinkList
    rule: Routes
    lane_slowness: tuple[float, ...]

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts, including those that are not nodes of the machine."""
        return len(self.host_switch)

    @cached_property
    def host_switch(self) -> Ints:
        """Switch of every host, numbered from 0. In a torus, each host is its own switch."""
        return np.asarray(self.rule.host_switch)

    @cached_property
    def host_group(self) -> Ints:
        """Group of every host, numbered from 0."""
        return np.asarray(self.rule.host_group)

    @cached_property
    def node_switch(self) -> Ints:
        """Switch of every node."""
        return self.host_switch[self.node_host]

    @cached_property
    def node_group(self) -> Ints:
        """Group of every node."""
        return self.host_group[self.node_host]

    @cached_property
    def _numbers(self) -> Ints:
        """Number of every link of every lane, shape (n_lanes, n_links_per_plane)."""
        n = len(self.plane.bandwidth)
        lanes = np.arange(self.n_lanes)[:, None]
        if not self.is_shared:
            return lanes * n + np.arange(n)
        is_own = self.plane.link_class == HOST
        n_own = int(is_own.sum())
        place = np.where(is_own, np.cumsum(is_own) - 1, np.cumsum(~is_own) - 1)
        return np.where(is_own, lanes * n_own + place, self.n_lanes * n_own + place)

    @cached_property
    def _origin(self) -> tuple[Ints, Ints]:
        """First lane that uses each link, and number of the link in the plane of a lane."""
        n = 1 + int(self._numbers.max(initial=-1))
        lane, link = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
        for i in reversed(range(self.n_lanes)):
            lane[self._numbers[i]] = i
            link[self._numbers[i]] = np.arange(len(self.plane.bandwidth))
        return lane, link

    @property
    def n_links(self) -> int:
        """Return the number of links."""
        return len(self._origin[0])

    @cached_property
    def bandwidth(self) -> Floats:
        """Bandwidth of every link in bytes per second.

        The bandwidth of a host's link is divided by the slowness of its lane.
        """
        lane, link = self._origin
        slowness = np.array(self.lane_slowness)[lane]
        slower = np.where(self.link_class == HOST, slowness, 1.0)
        return np.asarray(self.plane.bandwidth[link] / slower)

    @cached_property
    def latency_ns(self) -> Floats:
        """Latency of every link in nanoseconds."""
        return np.asarray(self.plane.latency_ns[self._origin[1]])

    @cached_property
    def link_class(self) -> Ints:
        """Class of every link, as an index into `LINK_CLASSES`."""
        return np.asarray(self.plane.link_class[self._origin[1]])

    def link_name(self, link: int) -> str:
        """Return the name of a link, with its lane if several lanes have such a link."""
        lane, place = self.origin(link)
        name = self.plane.name(place)
        is_alone = self.n_lanes == 1 or (self.is_shared and self.link_class[link] != HOST)
        return name if is_alone else f"{name}, lane {lane}"

    def origin(self, link: int) -> tuple[int, int]:
        """Return the first lane that uses a link, and the number of the link in its plane."""
        lane, place = (int(column[link]) for column in self._origin)
        return lane, place

    def link_ends(self, link: int) -> tuple[str, str] | None:
        """Return the hosts or switches at the ends of a link, or None if they are unknown."""
        place = int(self._origin[1][link])
        return None if self.plane.ends is None else self.plane.ends(place)

    def routes(self, source: Ints, target: Ints, lane: Ints | int = 0) -> tuple[Ints, Ints]:
        """Return the links of routes between hosts.

        Parameters
        ----------
        source, target : ndarray of int, shape (n_routes,)
            Hosts at both ends of every route.
        lane : ndarray of int, shape (n_routes,), or int
            Lane that each route uses.

        Returns
        -------
        begin : ndarray of int64, shape (n_routes + 1,)
            Offsets of the routes in `links`, followed by the end of the last route.
        links : ndarray of int
            Links in the order of routes. A route from a host to itself has no links.
        """
        pairs = (np.ascontiguousarray(hosts, dtype=np.int64) for hosts in (source, target))
        begin, links = self.rule.routes(*pairs)
        if self.n_lanes == 1:
            return begin, links
        lanes = np.repeat(np.broadcast_to(lane, len(begin) - 1), np.diff(begin))
        return begin, self._numbers[lanes, links]

    def node_routes(self, source: Ints, target: Ints, lane: Ints | int = 0) -> tuple[Ints, Ints]:
        """Return the links of routes between nodes, as `routes` does between hosts."""
        return self.routes(self.node_host[source], self.node_host[target], lane)


@lru_cache(maxsize=8)
def fabric_of(machine: Machine) -> Fabric | None:
    """Return the links between the adapters of a machine.

    Parameters
    ----------
    machine : Machine

    Returns
    -------
    Fabric or None
        None if the machine has no topology.

    Raises
    ------
    MemoryLimitError
        If the tables of links do not fit into memory.
    """
    topology, hosts = machine.network.topology, machine.node_to_host
    if topology is None or hosts is None:
        return None
    rule: Routes
    if isinstance(topology, FatTree):
        rule = FatTreeRoutes(topology)
    elif isinstance(topology, Dragonfly):
        rule = DragonflyRoutes(topology)
    elif isinstance(topology, Torus):
        rule = TorusRoutes(topology)
    elif isinstance(topology, Graph):
        rule = GivenRoutes(topology) if topology.routes is not None else ShortestRoutes(topology)
    per_byte = machine.network.network.G_ns_per_byte
    lane = min(_FASTEST, 1e9 / per_byte) if per_byte > 0 else _FASTEST
    plane = rule.links(lane)
    n_bytes = _LINK_BYTES * machine.n_lanes * len(plane.bandwidth)
    require_memory(n_bytes, "the topology", "price", "use a smaller topology or fewer lanes")
    return Fabric(
        topology,
        machine.n_lanes,
        topology.lanes == "shared",
        np.array(hosts, dtype=np.int64),
        plane,
        rule,
        machine.lane_slowness,
    )
