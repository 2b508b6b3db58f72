"""Graphs of hosts and switches, with links between any of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from collplan.specs.errors import first_repeated, show_value
from collplan.specs.syntax.base import ShortModel
from collplan.specs.syntax.numbers import Flag, Nanoseconds, Natural, Rate
from collplan.specs.topology.base import MAX_HOSTS, TopologyModel, read_list

Vertex = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""Name of a host or a switch; an integer is turned into its text."""


class GraphLink(ShortModel):
    """A link of a graph.

    Parameters
    ----------
    source, target : str or None
        Hosts or switches at the two ends; None is valid if all routes are given.
    bandwidth : rate or None
        Rate of each direction; None for the rate of the fastest lane.
    latency_ns : float
        Latency that the link adds to a message, in ns.
    both : bool
        Whether the link carries messages in both directions. Otherwise it carries messages
        only from source to target.
    name : str or None
        Name for readers; it has no effect.
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
    return read_list(value)


class Graph(TopologyModel):
    """Hosts and switches with links between any of them, and shortest or given routes.

    Parameters
    ----------
    hosts : tuple of str
        Names of the hosts. A number n stands for the names "0", "1", and so on, up to n - 1.
    links : tuple of GraphLink
        All links. Ends that are not hosts are switches.
    routing : "shortest" or "ecmp"
        Choice among routes of the fewest links: by the order of `links` (``shortest``), or by
        a hash of source and destination (``ecmp``).
    seed : int
        Seed of that hash.
    routes : tuple or None
        Route from every host to every host, as positions in `links`. These links are used
        from source to target only. A route may be None from a host to itself. If `routes`
        itself is None, routes follow from `links` and `routing`.
    groups : tuple of int or None
        Group of every host; None for one group per switch.
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
        """Return 1, as each link can have its own rate and latency."""
        return 1

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return the names of the hosts."""
        return self.hosts

    @cached_property
    def vertices(self) -> dict[str, int]:
        """Number of each vertex by name: first the hosts, then the switches in order of `links`."""
        ends = (end for link in self.links for end in (link.source, link.target))
        return {name: i for i, name in enumerate(dict.fromkeys((*self.hosts, *ends))) if name}

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if len(set(self.hosts)) < len(self.hosts):
            twice = self.hosts[first_repeated(self.hosts)]
            yield f"hosts lists {show_value(twice)} twice; give every host once"
        if self.groups is not None and len(self.groups) != self.n_hosts:
            yield (
                f"groups lists {len(self.groups)} hosts, hosts has {self.n_hosts}; give the "
                f"group of every host"
            )
        yield from self._route_problems() if self.routes is not None else self._link_problems()

    def _link_problems(self) -> Iterator[str]:
        """Yield a message if a link has no valid ends, or links do not connect the hosts."""
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
        """Return a host without a route from host 0, or, if `backward`, without a route to it."""
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
        """Yield a message for the first mistake in the given routes, if there is one."""
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
