"""Topologies between adapters: fat trees, dragonflies, tori, and graphs of switches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from collplan.specs.base import ShortModel, SpecModel, raise_together
from collplan.specs.errors import show_value
from collplan.specs.numbers import (
    MAX_NS,
    REAL,
    Flag,
    Nanoseconds,
    Natural,
    Positive,
    Rate,
    parse_rate,
)

MAX_HOSTS: Final = 2**20
MAX_LINKS: Final = 2**24
"""Most hosts and links of a topology: tables are made of all of them."""
MAX_RATIO: Final = 1e6
_SAME: Final = 1e-9
"""Relative difference up to which two rates or numbers of ports are the same."""


def _read_rates(value: Any) -> Any:
    """Return bits per second: a number, or one for each level."""
    if value is None:
        return None
    rates = [parse_rate(rate) for rate in value] if isinstance(value, list | tuple) else None
    for rate in rates if rates is not None else [parse_rate(value)]:
        if rate == 0:
            raise ValueError("a link of 0 bit/s carries nothing; give more, or leave it out")
    return tuple(rates) if rates is not None else parse_rate(value)


def _read_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_latencies(value: Any) -> Any:
    return _checked(value, "a latency", f"0 to {MAX_NS} ns", lambda number: 0 <= number <= MAX_NS)


def _read_ratios(value: Any) -> Any:
    if value is None:
        return None
    return _checked(value, "a ratio", "more than 0", lambda number: 0 < number <= MAX_RATIO)


def _read_wrap(value: Any) -> Any:
    for entry in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(entry, bool):
            raise ValueError(f"{show_value(entry)} is not true or false; give one of them")
    return _read_list(value)


def _checked(value: Any, what: str, limits: str, is_within: Callable[[float], bool]) -> Any:
    """Return a number or a tuple of numbers that lie within limits."""
    for number in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not is_within(number):
            raise ValueError(f"{show_value(number)} is not {what}; give {limits}")
    return _read_list(value)


Rates = Annotated[Rate | tuple[Rate, ...] | None, BeforeValidator(_read_rates)]
"""The rate of all links, or of those of each level; None for as fast as the fastest lane."""
Latencies = Annotated[Nanoseconds | tuple[Nanoseconds, ...], BeforeValidator(_read_latencies)]
"""The latency of all links, or of those of each level."""
Ratio = Annotated[float, Field(gt=0, le=MAX_RATIO), REAL]


class TopologyModel(SpecModel):
    """Fields of all topologies: links of some levels, one network per lane or for all lanes.

    Parameters
    ----------
    bandwidth : rate, list of rates, or None
        Of all links in each direction, or of those of each level, from the hosts up; None
        for as fast as the fastest lane.
    latency_ns : float or list of float
        What each link adds to a message's latency.
    lanes : "planes" or "shared"
        Whether every lane has a network of its own, or all lanes share one beyond the
        hosts' own links.
    """

    bandwidth: Rates = None
    latency_ns: Latencies = 0.0
    lanes: Literal["planes", "shared"] = "planes"

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        raise NotImplementedError

    @property
    def n_levels(self) -> int:
        """Return how many levels of links have rates and latencies of their own."""
        raise NotImplementedError

    @property
    def hosts_per_switch(self) -> int | None:
        """Return how many hosts each switch has, None where that differs."""
        return None

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """Return the hosts' names, None where they have numbers only."""
        return None

    def level_rates(self, lane: float) -> tuple[float, ...]:
        """Return bytes per second of the links of every level, of lanes that have `lane`."""
        if isinstance(self.bandwidth, tuple):
            return tuple(rate / 8 for rate in self.bandwidth)
        return (lane if self.bandwidth is None else self.bandwidth / 8,) * self.n_levels

    @property
    def level_latencies(self) -> tuple[float, ...]:
        """Return the latency of the links of every level, in ns."""
        if isinstance(self.latency_ns, tuple):
            return self.latency_ns
        return (self.latency_ns,) * self.n_levels

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("bandwidth", "latency_ns"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != self.n_levels:
                yield (
                    f"{name} lists {len(given)} levels of links, the topology has "
                    f"{self.n_levels}; give one value for all, or {self.n_levels}"
                )
        if self.n_hosts > MAX_HOSTS:
            yield f"has {self.n_hosts} hosts; give {MAX_HOSTS} or fewer"


class FatTree(TopologyModel):
    """A tree of switches with several roots: every child is linked to all of its parents.

    Level 1 has the switches of hosts. A switch of level i has ``down[i - 1]`` children and
    ``up[i]`` parents, as in Zahavi's parallel ports generalized fat trees.

    Parameters
    ----------
    down : tuple of int
        Children of each switch, level by level from the hosts up.
    up : tuple of int or None
        Parents of each host, which is 1, and of each switch below the top; None for as many
        as `oversubscription` leaves.
    oversubscription : float, tuple of float or None
        What the links down from a switch carry over what those up from it carry: of the
        switches of hosts, or of all levels but the top. Where `up` is given, too, the rate of
        links up follows from it.
    routing : "d_mod_k" or "ecmp"
        How a parent is chosen on the way up: by the destination's number, or by a hash of
        source and destination.
    seed : int
        Of that hash.

    Examples
    --------
    >>> tree = FatTree(down=[4, 4], oversubscription=2)
    >>> tree.n_hosts, tree.parents
    (16, (1, 2))
    """

    kind: Literal["fat_tree"] = "fat_tree"
    down: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)]
    up: Annotated[tuple[Positive, ...], Field(max_length=8)] | None = None
    oversubscription: Annotated[Ratio | tuple[Ratio, ...] | None, BeforeValidator(_read_ratios)] = (
        None
    )
    routing: Literal["d_mod_k", "ecmp"] = "d_mod_k"
    seed: Natural = 0

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return math.prod(self.down)

    @property
    def n_levels(self) -> int:
        """Return the number of levels of links."""
        return len(self.down)

    @property
    def hosts_per_switch(self) -> int:
        """Return how many hosts each switch of level 1 has."""
        return self.down[0]

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Parents of each host, and of each switch of every level but the top."""
        return self.up if self.up is not None else tuple(map(round, self._ports()))

    @property
    def _ratios(self) -> tuple[float, ...]:
        """Oversubscription of every level of switches but the top."""
        given = self.oversubscription
        if isinstance(given, tuple):
            return given
        first = 1.0 if given is None else given
        return (first, *(1.0,) * (self.n_levels - 2))[: self.n_levels - 1]

    def _ports(self) -> tuple[float, ...]:
        """Return the links up that oversubscription leaves, whole or not."""
        rates = super().level_rates(1.0)
        return (
            1.0,
            *(
                self.down[level] * rates[level] / (ratio * rates[level + 1])
                for level, ratio in enumerate(self._ratios)
            ),
        )

    def level_rates(self, lane: float) -> tuple[float, ...]:
        """Return bytes per second of the links of every level, of lanes that have `lane`."""
        rates = list(super().level_rates(lane))
        if self.up is None or self.oversubscription is None or isinstance(self.bandwidth, tuple):
            return tuple(rates)
        for level, ratio in enumerate(self._ratios):
            rates[level + 1] = self.down[level] * rates[level] / (ratio * self.up[level + 1])
        return tuple(rates)

    def _problems(self) -> Iterator[str]:
        shapes: list[tuple[str, tuple[float, ...] | None, int]] = [("up", self.up, self.n_levels)]
        if isinstance(self.oversubscription, tuple):
            shapes.append(("oversubscription", self.oversubscription, self.n_levels - 1))
        for name, given, n in shapes:
            if given is not None and len(given) != n:
                yield f"{name} lists {len(given)} levels, down has {self.n_levels}; give {n}"
                return
        yield from super()._problems()
        if isinstance(self.bandwidth, tuple) and len(self.bandwidth) != self.n_levels:
            return
        if self.up is not None and self.up[0] != 1:
            yield f"up begins with {self.up[0]}; a host has 1 link per lane, give [1, ...]"
            return
        yield from self._misfits()
        n_links = 2 * sum(
            math.prod(self.down[level:]) * math.prod(self.parents[: level + 1])
            for level in range(self.n_levels)
        )
        if n_links > MAX_LINKS:
            yield f"has {n_links} links; give {MAX_LINKS} or fewer, with fewer ports"

    def _misfits(self) -> Iterator[str]:
        """Return where ports, rates and oversubscription do not fit together."""
        if self.up is not None and (
            self.oversubscription is None or not isinstance(self.bandwidth, tuple)
        ):
            return
        for level, ports in enumerate(self._ports()):
            if self.up is None and (ports < 1 - _SAME or abs(ports - round(ports)) > _SAME * ports):
                yield (
                    f"oversubscription {self._ratios[level - 1]:g} of {self.down[level - 1]} "
                    f"links down leaves {ports:g} links up from a switch of level {level}; give "
                    f"up as well, and the rate of links follows"
                )
            elif self.up is not None and abs(ports - self.up[level]) > _SAME * ports:
                yield (
                    f"up has {self.up[level]} links from a switch of level {level}, "
                    f"oversubscription and bandwidth give {ports:g}; leave one of them out"
                )


class Dragonfly(TopologyModel):
    """Groups of switches: links between all switches of a group, and between all groups.

    With `spines` it is a dragonfly+: the switches of a group that have hosts are linked to all
    of its spines instead of each other, and links between groups are the spines'.

    Parameters
    ----------
    groups : int
        Number of groups.
    routers : int
        Switches with hosts in each group.
    hosts : int
        Hosts of each switch.
    links : int
        Links between each two groups. Link t from group g to group h is at router or spine
        ``(h * links + t) mod n`` of g's n.
    spines : int
        Spines of each group; 0 for a dragonfly.
    bandwidth, latency_ns
        Levels are links of hosts, in a group, and between groups.
    routing : "minimal" or "valiant"
        Over one link between groups, or over a third group that a hash of source and
        destination chooses.
    seed : int
        Of hashes; among several links of two groups one chooses, too.

    Examples
    --------
    >>> Dragonfly(groups=33, routers=8, hosts=4).n_hosts
    1056
    """

    kind: Literal["dragonfly"] = "dragonfly"
    groups: Positive
    routers: Positive
    hosts: Positive
    links: Positive = 1
    spines: Natural = 0
    routing: Literal["minimal", "valiant"] = "minimal"
    seed: Natural = 0

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return self.groups * self.routers * self.hosts

    @property
    def n_levels(self) -> int:
        """Return 3: links of hosts, in a group, between groups."""
        return 3

    @property
    def hosts_per_switch(self) -> int:
        """Return how many hosts each switch has."""
        return self.hosts

    @property
    def n_inner_links(self) -> int:
        """Return the number of links in groups."""
        per_router = 2 * self.spines if self.spines else self.routers - 1
        return self.groups * self.routers * per_router

    @property
    def n_global_links(self) -> int:
        """Return the number of links between groups."""
        return self.groups * (self.groups - 1) * self.links

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if 2 * self.n_hosts + self.n_inner_links + self.n_global_links > MAX_LINKS:
            yield f"has more than {MAX_LINKS} links; give fewer groups, routers or links"


class Torus(TopologyModel):
    """Hosts in a grid of dimensions, each linked to its neighbors in both directions.

    Host numbers count along the first dimension first, and routes follow the dimensions in the
    same order, each by the shorter way.

    Parameters
    ----------
    dimensions : tuple of int
        Hosts along each dimension.
    wrap : bool or tuple of bool
        Whether the ends of all dimensions, or of each, are linked.
    group_dimensions : int
        Number of first dimensions; hosts that differ only in these are of one group.
    bandwidth, latency_ns
        Levels are dimensions.

    Examples
    --------
    >>> Torus(dimensions=[2, 3, 2, 4], group_dimensions=3).n_hosts
    48
    """

    kind: Literal["torus"] = "torus"
    dimensions: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)]
    wrap: Annotated[Flag | tuple[Flag, ...], BeforeValidator(_read_wrap)] = True
    group_dimensions: Natural = 0

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return math.prod(self.dimensions)

    @property
    def n_levels(self) -> int:
        """Return the number of dimensions."""
        return len(self.dimensions)

    @property
    def is_ring(self) -> tuple[bool, ...]:
        """Return for every dimension whether its ends are linked; two hosts have one link."""
        wraps = self.wrap if isinstance(self.wrap, tuple) else (self.wrap,) * self.n_levels
        return tuple(wrap and size > 2 for wrap, size in zip(wraps, self.dimensions, strict=True))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if isinstance(self.wrap, tuple) and len(self.wrap) != self.n_levels:
            yield (
                f"wrap lists {len(self.wrap)} dimensions, the torus has {self.n_levels}; give "
                f"true or false for all, or for each"
            )
        if self.group_dimensions > self.n_levels:
            yield (
                f"group_dimensions is {self.group_dimensions}, the torus has {self.n_levels} "
                f"dimensions; give {self.n_levels} or fewer"
            )
        if 2 * self.n_hosts * self.n_levels > MAX_LINKS:
            yield f"has more than {MAX_LINKS} links; give fewer hosts or dimensions"


CLASSES: Final = ("host", "switch", "group", "global")
"""Classes of links: of a host, and of messages that stay near, in a group, or leave it."""
Vertex = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""A host or a switch, by name; a number is one, too."""


class GraphLink(ShortModel):
    """A link of a graph.

    Parameters
    ----------
    source, target : str or None
        The hosts or switches at its ends; None where all routes are given.
    bandwidth : rate or None
        Of each direction; None for that of the fastest lane.
    latency_ns : float
        What it adds to a message's latency.
    both : bool
        Whether it carries messages in both directions, or from source to target only.
    name : str or None
        For people.
    """

    source: Vertex | None = None
    target: Vertex | None = None
    bandwidth: Rate | None = None
    latency_ns: Nanoseconds = 0.0
    both: Flag = True
    name: str | None = None


def _read_hosts(value: Any) -> Any:
    if type(value) is int:
        if not 1 <= value <= MAX_HOSTS:
            raise ValueError(f"{value} hosts; give 1 to {MAX_HOSTS}, or a list of their names")
        return tuple(map(str, range(value)))
    return _read_list(value)


class Graph(TopologyModel):
    """Hosts and switches with any links, and shortest or given routes.

    Parameters
    ----------
    hosts : tuple of str
        Names of the hosts; a number stands for "0", "1" and so on.
    links : tuple of GraphLink
        All links. Ends that are no hosts are switches.
    routing : "shortest" or "ecmp"
        Over the fewest links: by the first link in the list where several ways are as short, or
        by a hash of source and destination.
    seed : int
        Of that hash.
    routes : tuple or None
        For every host, the route to every host: positions of links in `links`, of which only
        their own direction is used; None where there is no route.
    groups : tuple of int or None
        The group of every host; None for one per switch.
    """

    kind: Literal["graph"] = "graph"
    hosts: Annotated[tuple[Vertex, ...], Field(min_length=1), BeforeValidator(_read_hosts)]
    links: tuple[GraphLink, ...]
    routing: Literal["shortest", "ecmp"] = "shortest"
    seed: Natural = 0
    routes: tuple[tuple[tuple[Natural, ...] | None, ...], ...] | None = None
    groups: tuple[Natural, ...] | None = None

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return len(self.hosts)

    @property
    def n_levels(self) -> int:
        """Return 1: links have values of their own."""
        return 1

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return the hosts' names."""
        return self.hosts

    @cached_property
    def vertices(self) -> dict[str, int]:
        """Numbers of hosts, then of switches in the order of links, by name."""
        ends = (end for link in self.links for end in (link.source, link.target))
        return {name: i for i, name in enumerate(dict.fromkeys((*self.hosts, *ends))) if name}

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if len(set(self.hosts)) < len(self.hosts):
            twice = next(name for i, name in enumerate(self.hosts) if name in self.hosts[:i])
            yield f"hosts lists {show_value(twice)} twice; give every host once"
        if self.groups is not None and len(self.groups) != self.n_hosts:
            yield (
                f"groups lists {len(self.groups)} hosts, hosts has {self.n_hosts}; give the "
                f"group of every host"
            )
        yield from self._route_problems() if self.routes is not None else self._link_problems()

    def _link_problems(self) -> Iterator[str]:
        """Return where links do not connect the hosts."""
        for i, link in enumerate(self.links):
            if link.source is None or link.target is None:
                yield f"links[{i}] has no ends; give source and target, or all routes"
                return
            if link.source == link.target:
                yield f"links[{i}] links {show_value(link.source)} to itself; leave it out"
                return
        for backward in (False, True):
            left = self._unreached(backward)
            if left is not None:
                pair = (left, self.hosts[0]) if backward else (self.hosts[0], left)
                one, other = map(show_value, pair)
                yield f"is disconnected: no route from host {one} to host {other}; link them"
                return

    def _unreached(self, backward: bool) -> str | None:
        """Return a host that the first one does not reach, or that does not reach it."""
        after: dict[str | None, list[str | None]] = {}
        for link in self.links:
            ends = (link.source, link.target)
            for one, other in (
                (ends, ends[::-1]) if link.both else (ends[:: -1 if backward else 1],)
            ):
                after.setdefault(one, []).append(other)
        reached: set[str | None] = {self.hosts[0]}
        todo: list[str | None] = [self.hosts[0]]
        while todo:
            for other in after.get(todo.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    todo.append(other)
        return next((host for host in self.hosts if host not in reached), None)

    def _route_problems(self) -> Iterator[str]:
        """Return what is wrong with given routes."""
        routes, n = self.routes or (), self.n_hosts
        if len(routes) != n or any(len(row) != n for row in routes):
            yield f"routes is no table of {n} by {n} hosts; give a route for each two"
            return
        for a, row in enumerate(routes):
            for b, route in enumerate(row):
                if a == b:
                    continue
                if not route:
                    yield (
                        f"routes[{a}][{b}]: there is no route from host {self.hosts[a]} to host "
                        f"{self.hosts[b]}; list its links"
                    )
                    return
                if max(route) >= len(self.links) or len(set(route)) < len(route):
                    yield (
                        f"routes[{a}][{b}] is {show_value(list(route))}; give every link once, "
                        f"of 0 to {len(self.links) - 1}"
                    )
                    return


TOPOLOGIES: Final[dict[str, type[SpecModel]]] = {
    "fat_tree": FatTree,
    "dragonfly": Dragonfly,
    "torus": Torus,
    "graph": Graph,
}
Topology = Annotated[FatTree | Dragonfly | Torus | Graph, Field(discriminator="kind")]
"""A topology of one of these kinds."""
