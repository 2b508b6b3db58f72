"""Links and routes of dragonflies and of dragonflies+, whose groups have leaves and spines."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.topology.hashing import spread
from collplan.planner.topology.links import GLOBAL, GROUP, HOST, LinkList, fill
from collplan.specs.topology import Dragonfly

_LONGEST = 12
"""Upper bound of the links of a route, which may cross a third group through one of its leaves."""


class DragonflyRoutes:
    """Minimal routes of a dragonfly, or routes through a third group."""

    def __init__(self, shape: Dragonfly) -> None:
        self.shape = shape
        n_inner = shape.n_inner_links
        self._table = np.array(
            [
                shape.groups,
                shape.routers,
                shape.hosts,
                shape.links,
                shape.spines,
                2 * shape.n_hosts,  # first link in a group
                2 * shape.n_hosts + n_inner,  # first one between groups
                shape.routing == "valiant",
                shape.seed,
            ]
        )

    def links(self, lane: float) -> LinkList:
        """Return all links, starting with those of hosts.

        The rate of a lane is `lane` bytes per second.
        """
        shape = self.shape
        sizes = [2 * shape.n_hosts, shape.n_inner_links, shape.n_global_links]
        return LinkList(
            np.repeat(shape.level_rates(lane), sizes),
            np.repeat(shape.level_latencies, sizes),
            np.repeat(np.array([HOST, GROUP, GLOBAL], dtype=np.int8), sizes),
            self._name,
            self._ends,
        )

    def _name(self, link: int) -> str:
        shape, name = self.shape, " to ".join(self._ends(link))
        place = link - 2 * shape.n_hosts - shape.n_inner_links
        return f"{name} ({place % shape.links})" if place >= 0 and shape.links > 1 else name

    def _ends(self, link: int) -> tuple[str, str]:
        shape = self.shape
        if link < 2 * shape.n_hosts:
            side, host = divmod(link, shape.n_hosts)
            ends = (f"host {host}", self._router(host // shape.hosts))
            return ends[::-1] if side else ends
        place = link - 2 * shape.n_hosts
        if place >= shape.n_inner_links:
            place, turn = divmod(place - shape.n_inner_links, shape.links)
            one, other = divmod(place, shape.groups - 1)
            other += other >= one
            return self._port(one, other, turn), self._port(other, one, turn)
        if shape.spines == 0:
            router, other = divmod(place, shape.routers - 1)
            group, own = divmod(router, shape.routers)
            there = group * shape.routers + other + (other >= own)
            return self._router(router), self._router(there)
        side, place = divmod(place, shape.n_inner_links // 2)
        router, spine = divmod(place, shape.spines)
        ends = (self._router(router), f"spine {router // shape.routers}.{spine}")
        return ends[::-1] if side else ends

    def _port(self, group: int, other: int, turn: int) -> str:
        """Return the name of a group's router or spine that has a certain link to another group.

        `turn` is the number of the link among those between both groups.
        """
        shape = self.shape
        port = (other * shape.links + turn) % (shape.spines or shape.routers)
        return f"{'spine' if shape.spines else 'switch'} {group}.{port}"

    def _router(self, router: int) -> str:
        return "switch {}.{}".format(*divmod(router, self.shape.routers))

    @property
    def host_switch(self) -> Ints:
        """Return the switch of every host."""
        return np.arange(self.shape.n_hosts) // self.shape.hosts

    @property
    def host_group(self) -> Ints:
        """Return the group of every host."""
        return self.host_switch // self.shape.routers

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the links of routes from sources to targets, in CSR form."""
        scratch = np.empty(_LONGEST, dtype=np.int64)
        return fill(_walk, (self._table, scratch), source, target)


@compiled
def _walk(table: Ints, scratch: Ints, source: Ints, target: Ints, begin: Ints, links: Ints) -> None:
    """Write the links of routes, or, if `links` is empty, the lengths of routes to `begin[1:]`."""
    for i in range(len(source)):
        n = _route(table, scratch, source[i], target[i])
        if len(links) == 0:
            begin[i + 1] = n
        else:
            for j in range(n):
                links[begin[i] + j] = scratch[j]


@inner
def _route(table: Ints, scratch: Ints, a: int, b: int) -> int:
    """Write the links of a route to `scratch`, and return their number."""
    if a == b:
        return 0
    groups, routers, hosts = table[0], table[1], table[2]
    router, its_router = a // hosts, b // hosts
    group, its_group = router // routers, its_router // routers
    scratch[0] = a
    n = 1
    # A router of the group, or a spine. The numbers of spines follow those of routers.
    place = router % routers
    if group != its_group and table[7] == 1 and groups > 2:
        third = spread(table[8], a, b, 1) % (groups - 2)
        third += third >= min(group, its_group)
        third += third >= max(group, its_group)
        n, place = _leave(table, scratch, n, (a, b), (group, third, place))
        n, place = _leave(table, scratch, n, (a, b), (third, its_group, place))
    elif group != its_group:
        n, place = _leave(table, scratch, n, (a, b), (group, its_group, place))
    n = _cross(table, scratch, n, (a, b), (its_group, place, its_router % routers))
    scratch[n] = groups * routers * hosts + b
    return int(n + 1)


@inner
def _leave(
    table: Ints, scratch: Ints, n: int, ends: tuple[int, int], way: tuple[int, int, int]
) -> tuple[int, int]:
    """Append the links from a place in a group to another group to a route.

    Returns the number of links in the route and the place in the other group.
    """
    groups, routers, n_links, spines = table[0], table[1], table[3], table[4]
    group, other, place = way
    turn = 0
    if n_links > 1:
        turn = spread(table[8], ends[0], ends[1], 2 + group) % n_links
    ports = spines if spines > 0 else routers
    here = (other * n_links + turn) % ports
    there = (group * n_links + turn) % ports
    if spines > 0:
        here, there = here + routers, there + routers
    n = _cross(table, scratch, n, ends, (group, place, here))
    scratch[n] = table[6] + (group * (groups - 1) + other - (other > group)) * n_links + turn
    return n + 1, there


@inner
def _cross(
    table: Ints, scratch: Ints, n: int, ends: tuple[int, int], way: tuple[int, int, int]
) -> int:
    """Append the links between two places in a group, and return the number of links."""
    routers, spines = table[1], table[4]
    group, here, there = way
    if here == there:
        return n
    if spines == 0:
        router = group * routers + here
        scratch[n] = table[5] + router * (routers - 1) + there - (there > here)
        return n + 1
    if here >= routers and there >= routers:
        # Go from spine to spine through a leaf.
        leaf = spread(table[8], ends[0], ends[1], 0) % routers
        n = _cross_spine(table, scratch, n, (group, here - routers, leaf, 1))
        return int(_cross_spine(table, scratch, n, (group, there - routers, leaf, 0)))
    if here < routers and there < routers:
        spine = ends[1] % spines
        n = _cross_spine(table, scratch, n, (group, spine, here, 0))
        return int(_cross_spine(table, scratch, n, (group, spine, there, 1)))
    if here < routers:
        return int(_cross_spine(table, scratch, n, (group, there - routers, here, 0)))
    return int(_cross_spine(table, scratch, n, (group, here - routers, there, 1)))


@inner
def _cross_spine(table: Ints, scratch: Ints, n: int, way: tuple[int, int, int, int]) -> int:
    """Append the link from a leaf up to a spine, or down, and return the number of links."""
    group, spine, leaf, is_down = way
    groups, routers, spines = table[0], table[1], table[4]
    scratch[n] = table[5] + ((is_down * groups + group) * routers + leaf) * spines + spine
    return n + 1
