"""Dragonflies: groups of switches, with links between all groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from collplan.specs.syntax.numbers import Natural, Positive
from collplan.specs.topology.base import MAX_LINKS, TopologyModel


class Dragonfly(TopologyModel):
    """Groups of switches, with links between all switches of a group and between all groups.

    With `spines`, the topology is a dragonfly+: the switches that have hosts are linked to all
    spines of their group instead of to each other, and links between groups join spines.

    Parameters
    ----------
    groups : int
        Number of groups.
    routers : int
        Number of switches with hosts per group.
    hosts : int
        Number of hosts per switch.
    links : int
        Number of links between every two groups. Link t from group g to group h begins at
        router or spine ``(h * links + t) mod n`` of the n in group g.
    spines : int
        Number of spines per group; 0 for a dragonfly.
    bandwidth, latency_ns
        Rate, and latency in ns, of every link: one for all levels, or one per level. The
        three levels are links of hosts, links in a group, and links between groups.
    routing : "minimal" or "valiant"
        Routes between groups: over one link (``minimal``), or over a third group that a
        hash of source and destination chooses (``valiant``).
    seed : int
        Seed of the hashes. A hash also chooses one of several links between two groups.

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
    def hosts_per_switch(self) -> tuple[int, ...]:
        """Return the number of hosts per router and per group."""
        return self.hosts, self.hosts * self.routers

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
