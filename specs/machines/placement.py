"""Placement of the nodes of a machine on the hosts of a topology."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from collplan.specs.errors import first_repeated, show_value
from collplan.specs.syntax.base import ShortModel
from collplan.specs.syntax.host_list import expand_hosts
from collplan.specs.syntax.numbers import Flag, Natural, Positive, read_whole
from collplan.specs.topology import MAX_HOSTS, TopologyModel
from collplan.specs.topology.conf import first_hosts

_FORMS = (
    "give a list of hosts, {random: SEED, of: HOSTS}, or {nodelist: NAMES, topology_conf: FILE}"
)


def _read_host(value: Any) -> Any:
    if isinstance(value, str):
        return value
    number = read_whole(value)
    if not 0 <= number < MAX_HOSTS:
        raise ValueError(
            f"{show_value(number)} is not a host; give 0 to {MAX_HOSTS - 1}, or a name"
        )
    return number


Host = Annotated[Annotated[int, Field(ge=0, le=MAX_HOSTS - 1)] | str, BeforeValidator(_read_host)]
"""Number of a host, or its name if the topology has names."""


class Placement(ShortModel):
    """Hosts of the nodes, stated in one of three ways; a list stands for `hosts`.

    Parameters
    ----------
    hosts : tuple of int or str
        Host of every node: its number, counted from 0, or its name in a graph.
    random : int
        Seed of a random choice of hosts. Nodes take the chosen hosts in ascending order.
    of : int or None
        Number of leading hosts to choose from; None for all hosts.
    shuffled : bool
        Whether nodes take the chosen hosts in random order instead.
    nodelist : str
        Names of the nodes in Slurm's short form, as ``node[001-064]``.
    switches : tuple of str
        Names of the hosts of each switch of level 1, in Slurm's short form, in the order of
        the switches in the topology. In a file, ``topology_conf: FILE`` reads them from
        Slurm's ``topology.conf``, whose path is relative to the spec, and `upper_switches` too.
    upper_switches : tuple of tuple of int
        Number of switches below each switch, per level from level 2 up, in the order of the
        switches. Hosts of switches below one switch are then in one group of the topology.

    Examples
    --------
    >>> from collplan.specs.topology import FatTree
    >>> tree = FatTree(down=[4, 4])
    >>> Placement(random=7, of=8).hosts_of(4, tree)
    (0, 1, 3, 5)
    >>> Placement(nodelist="n[3-4]", switches=["n[1-3]", "n[4-6]"]).hosts_of(2, tree)
    (2, 4)
    """

    hosts: tuple[Host, ...] | None = None
    random: Natural | None = None
    of: Positive | None = None
    shuffled: Flag = False
    nodelist: str | None = None
    switches: tuple[str, ...] | None = None
    upper_switches: tuple[tuple[Positive, ...], ...] = ()

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields; raise `ValueError` unless exactly one of the ways is used."""
        ways = [name for name in ("hosts", "random", "nodelist") if fields.get(name) is not None]
        if len(ways) != 1 and not set(fields) - set(cls.model_fields):
            given = f"has {' and '.join(ways)}" if ways else "says no hosts"
            raise ValueError(f"{given}; {_FORMS}")
        return fields

    def hosts_of(self, n_nodes: int, topology: TopologyModel) -> tuple[int, ...]:
        """Return the number of the host of every node.

        Raises
        ------
        ValueError
            If hosts do not fit the number of nodes, are named twice, or do not exist.
        """
        if self.random is not None:
            return self._chosen(n_nodes, topology.n_hosts)
        if self.nodelist is not None:
            places = self._numbers(topology)
            named: tuple[int | str, ...] = _expanded(self.nodelist, "nodelist")
        else:
            places = {name: i for i, name in enumerate(topology.host_names or ())}
            named = self.hosts or ()
        way = "nodelist" if self.nodelist is not None else "hosts"
        if len(named) != n_nodes:
            raise ValueError(
                f"{way} names {len(named)} hosts, nodes is {n_nodes}; give the host of every node"
            )
        found = tuple(_place(host, places, topology.n_hosts, way) for host in named)
        if len(set(found)) < n_nodes:
            name = named[first_repeated(found)]
            raise ValueError(
                f"{way} names host {show_value(name, plain=True)} twice; give each node its own"
            )
        return found

    def _chosen(self, n_nodes: int, n_hosts: int) -> tuple[int, ...]:
        among = n_hosts if self.of is None else self.of
        if among > n_hosts:
            raise ValueError(
                f"of is {among}, the topology has {n_hosts} hosts; give {n_hosts} or fewer"
            )
        if n_nodes > among:
            raise ValueError(f"{n_nodes} nodes of {among} hosts; give fewer nodes, or more hosts")
        found = random.Random(self.random).sample(range(among), n_nodes)
        return tuple(found if self.shuffled else sorted(found))

    def _numbers(self, topology: TopologyModel) -> dict[str, int]:
        """Return the number of every host that has a name."""
        if self.switches is None:
            if topology.host_names is None:
                raise ValueError(
                    "nodelist has names, the topology's hosts have none; give topology_conf as well"
                )
            return {name: i for i, name in enumerate(topology.host_names)}
        places: dict[str, int] = {}
        sizes = topology.hosts_per_switch
        starts = first_hosts(len(self.switches), self.upper_switches, sizes) if sizes else None
        for i, text in enumerate(self.switches):
            names = _expanded(text, f"switches[{i}]")
            if sizes and len(names) > sizes[0]:
                raise ValueError(
                    f"switch {i} has {len(names)} hosts, switches of the topology have {sizes[0]}; "
                    f"make them agree"
                )
            first = len(places) if starts is None else starts[i]
            places.update((name, first + j) for j, name in enumerate(names))
            if first + len(names) > topology.n_hosts:
                raise ValueError(
                    f"switches have more hosts than the topology, which has {topology.n_hosts}; "
                    f"make them agree"
                )
        return places


def _expanded(text: str, way: str) -> tuple[str, ...]:
    try:
        return expand_hosts(text)
    except ValueError as error:
        raise ValueError(
            f"{way} is no list of hosts: {error}; give names as node[001-064]"
        ) from None


def _place(host: int | str, places: Mapping[str, int], n_hosts: int, way: str) -> int:
    if isinstance(host, str):
        if host not in places:
            raise ValueError(
                f"{way} names host {show_value(host)}, which the topology does not have; give one "
                f"of its {len(places)} names"
            )
        return places[host]
    if host >= n_hosts:
        raise ValueError(
            f"{way} names host {host}, the topology has {n_hosts} hosts; give 0 to {n_hosts - 1}"
        )
    return host
