"""Model of the machine: nodes, cores, NUMA domains, lanes, and the placement of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import count
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from collplan.specs.errors import show_value
from collplan.specs.machines.network import Network
from collplan.specs.machines.placement import Placement
from collplan.specs.presets import load_preset, preset_names
from collplan.specs.syntax.base import ShortModel, described, raise_together
from collplan.specs.syntax.numbers import (
    MAX_LANES,
    MAX_RANKS,
    RATE_SCHEMA,
    Node,
    NumberOfCores,
    NumberOfDomains,
    NumberOfNodes,
    NumberOfRanks,
    parse_rate,
    read_whole,
    write_rate,
    write_rates,
)

MAX_CORES: Final = 2**24
"""Greatest number of cores of all nodes together, as the simulator keeps a clock for each."""
MAX_ADAPTERS: Final = 2**22
"""Greatest number of lanes of all nodes together, for the same reason."""

Ints = tuple[int, ...]


def _check_ranks_per_node(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
    numbers = value if isinstance(value, list | tuple) else [value]
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise ValueError(
                f"{show_value(number)} is not a number of ranks; give an int, or a list of them"
            )
        if number < 1:
            raise ValueError(f"{show_value(number)} ranks on a node; give 1 or more")
        if number > MAX_RANKS:
            raise ValueError(f"{show_value(number)} ranks on a node; give {MAX_RANKS} or fewer")
    return value


_LANES_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MAX_LANES},
        {"type": "array", "items": RATE_SCHEMA, "minItems": 1, "maxItems": MAX_LANES},
    ]
}


def _read_lanes(value: Any) -> Any:
    if isinstance(value, list | tuple):
        if not 1 <= len(value) <= MAX_LANES:
            raise ValueError(f"{len(value)} rates; give one for each of 1 to {MAX_LANES} lanes")
        return tuple(map(parse_rate, value))
    if isinstance(value, str):
        raise ValueError(
            f"{show_value(value)} is not a number of lanes; give one, or a list with every lane's "
            f"rate, as [100Gbit, 25Gbit]"
        )
    number = read_whole(value)
    if number < 1:
        raise ValueError(f"{show_value(value)} is too small; give 1 or more")
    if number > MAX_LANES:
        raise ValueError(f"{show_value(value)} is too large; give {MAX_LANES} or less")
    return number


def _check_rank_order(value: Any) -> Any:
    if isinstance(value, list | tuple):
        for node in value:
            is_whole = isinstance(node, int) and not isinstance(node, bool)
            if not is_whole or not 0 <= node < MAX_RANKS:
                raise ValueError(
                    f"{show_value(node)} is not a node; list the node of every rank, from 0"
                )
    elif value not in ("block", "cyclic"):
        raise ValueError(
            f"{show_value(value)} is not a rank order; give block, cyclic, or a list with every "
            f"rank's node"
        )
    return value


def _read_placement(value: Any) -> Any:
    return {"hosts": value} if isinstance(value, list | tuple) else value


RankOrder = Annotated[
    Literal["block", "cyclic"] | tuple[Node, ...], BeforeValidator(_check_rank_order)
]
"""Order of ranks by name, or the node of every rank."""


def _schema(fields: dict[str, Any]) -> dict[str, Any]:
    names = {"enum": list(preset_names()), "description": "A machine known by name."}
    fields["properties"] = {"preset": names, **fields["properties"]}
    file = {
        "type": "string",
        "pattern": r"\.(ya?ml|json)$",
        "description": "A file with a machine, beside the spec.",
    }
    about = "A preset's name, a machine, or a file with one."
    return {"anyOf": [names, fields, file], "description": about}


class Machine(ShortModel):
    """Nodes of cores in NUMA domains, joined by lanes, with ranks placed on them.

    On a node, local rank i runs on core i and receives on lane ``i mod
    n_lanes``. NUMA domains are contiguous blocks of cores. The name of a preset stands
    for its machine, and ``{preset: hydra, nodes: 4}`` changes fields of that machine.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    ranks_per_node : int or tuple of int
        Number of ranks per node: one number for all nodes, or one for each node.
    numa_domains : int
        Number of NUMA domains per node.
    cores : int or None
        Number of cores per node; None for the largest number of ranks on a node.
    lanes : int or tuple of int
        Network adapters per node that can be used at the same time: their number, or the rate
        of each, as ``[100Gbit, 25Gbit]``. The rate of the fastest lane sets the
        `G_ns_per_byte` of the network, unless the network has one, which must agree with it
        within a quarter. Slower lanes take longer per byte in proportion.
    rank_order : "block", "cyclic" or tuple of int
        Order in which ranks are placed: ``block`` fills node after node, ``cyclic`` places
        one rank per node in turn, on nodes that have room. A list states the node of every
        rank.
    network : Network
        Costs of communication.
    placement : Placement or None
        Hosts of the topology on which the nodes are placed; None for the first hosts.

    Examples
    --------
    >>> machine = Machine(nodes=2, ranks_per_node=[3, 1], rank_order="cyclic", lanes=2)
    >>> machine.rank_to_node
    (0, 1, 0, 0)
    >>> machine.rank_to_lane
    (0, 0, 1, 0)
    """

    model_config = described(_schema)
    text_is: ClassVar = "preset"

    nodes: NumberOfNodes = 1
    ranks_per_node: Annotated[
        NumberOfRanks | tuple[NumberOfRanks, ...], BeforeValidator(_check_ranks_per_node)
    ] = 1
    numa_domains: NumberOfDomains = 1
    cores: NumberOfCores | None = None
    lanes: Annotated[
        int | Ints,
        PlainValidator(_read_lanes),
        PlainSerializer(write_rates),
        WithJsonSchema(_LANES_SCHEMA),
    ] = 1
    rank_order: RankOrder = "block"
    network: Network = Network()
    placement: Annotated[Placement, BeforeValidator(_read_placement)] | None = None

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields, completed by those of the preset if one is named."""
        if "preset" in fields:
            changes = {key: entry for key, entry in fields.items() if key != "preset"}
            fields = _merge(load_preset(fields["preset"]), changes)
        return _with_lane_rate(fields)

    def _check(self) -> None:
        raise_together(self._problems())
        if isinstance(self.rank_order, tuple):
            self._check_order(self.rank_order)

    def _problems(self) -> Iterator[str]:
        """Yield a message per mistake in the numbers and in the placement."""
        if not self.ranks_per_node:
            yield "ranks_per_node is an empty list; give one number for each node"
            return
        if isinstance(self.ranks_per_node, tuple) and len(self.ranks_per_node) != self.nodes:
            yield (
                f"ranks_per_node lists {len(self.ranks_per_node)} nodes, nodes is {self.nodes}; "
                f"give one number for each node"
            )
        fullest = _fullest(self.ranks_per_node)
        if self.cores is not None and fullest > self.cores:
            yield (
                f"more ranks than cores: ranks_per_node is {fullest}, cores is {self.cores}; "
                f"raise cores or lower ranks_per_node"
            )
        if self.numa_domains > self.cores_per_node:
            yield (
                f"more NUMA domains than cores: numa_domains is {self.numa_domains}, a node has "
                f"{self.cores_per_node} cores; raise cores or lower numa_domains"
            )
        if self.n_ranks > MAX_RANKS:
            yield f"{self.n_ranks} ranks; at most {MAX_RANKS} fit a plan, use fewer nodes"
        for name, number, most in (
            ("cores", self.cores_per_node, MAX_CORES),
            ("lanes", self.n_lanes, MAX_ADAPTERS),
        ):
            if number * self.nodes > most:
                yield (
                    f"{self.nodes} nodes of {number} {name}; all nodes together can have {most}, "
                    f"lower {name} or nodes"
                )
        yield from self._rate_problems()
        yield from self._placement_problems()

    def _rate_problems(self) -> Iterator[str]:
        """Yield a message if the rates of lanes contradict the bandwidth of the network."""
        if isinstance(self.lanes, int):
            return
        of_lane, stated = 8e9 / max(self.lanes), self.network.network.G_ns_per_byte
        if abs(stated - of_lane) > of_lane / 4:
            rate = f"{8 / stated:g} Gbit/s" if stated else "no limit"
            yield (
                f"lanes contradict the network: the fastest lane is {write_rate(max(self.lanes))}, "
                f"network.network.G_ns_per_byte is {stated:g}, which is {rate}; change one of "
                "them, or leave out G_ns_per_byte"
            )

    def _placement_problems(self) -> Iterator[str]:
        """Yield a message if the nodes cannot be placed on hosts of the topology."""
        topology = self.network.topology
        if topology is None:
            if self.placement is not None:
                yield "placement needs hosts; give network.topology as well, or leave it out"
        elif self.nodes > topology.n_hosts:
            yield (
                f"more nodes than hosts: nodes is {self.nodes}, network.topology has "
                f"{topology.n_hosts}; use fewer nodes or a larger topology"
            )
        elif self.placement is not None:
            try:
                self.placement.hosts_of(self.nodes, topology)
            except ValueError as error:
                yield f"placement: {error}"

    def _check_order(self, order: Ints) -> None:
        if len(order) != self.n_ranks:
            raise ValueError(
                f"rank_order lists {len(order)} ranks, the machine has {self.n_ranks}; "
                f"give the node of every rank"
            )
        for node in order:
            if node >= self.nodes:
                raise ValueError(
                    f"rank_order names node {node}, nodes is {self.nodes}; "
                    f"use nodes 0 to {self.nodes - 1}"
                )
        used = Counter(order)
        for node, room in enumerate(self.node_to_n_ranks):
            if used[node] != room:
                raise ValueError(
                    f"rank_order puts {used[node]} ranks on node {node}, "
                    f"ranks_per_node says {room}; make them agree"
                )

    @cached_property
    def node_to_n_ranks(self) -> Ints:
        """Number of ranks on every node."""
        if isinstance(self.ranks_per_node, tuple):
            return self.ranks_per_node
        return (self.ranks_per_node,) * self.nodes

    @cached_property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return sum(self.node_to_n_ranks)

    @cached_property
    def node_to_host(self) -> Ints | None:
        """Host of every node in the topology of the network; None without a topology."""
        topology = self.network.topology
        if topology is None:
            return None
        if self.placement is None:
            return tuple(range(self.nodes))
        return self.placement.hosts_of(self.nodes, topology)

    @property
    def cores_per_node(self) -> int:
        """Return the number of cores per node."""
        return self.cores if self.cores is not None else _fullest(self.ranks_per_node)

    @cached_property
    def rank_to_node(self) -> Ints:
        """Node of every rank."""
        if isinstance(self.rank_order, tuple):
            return self.rank_order
        if self.rank_order == "block":
            return tuple(node for node, n in enumerate(self.node_to_n_ranks) for _ in range(n))
        return tuple(
            node
            for turn in range(max(self.node_to_n_ranks))
            for node, n in enumerate(self.node_to_n_ranks)
            if turn < n
        )

    @cached_property
    def rank_to_local(self) -> Ints:
        """Local rank of every rank: its position among the ranks of its node."""
        places = [count() for _ in range(self.nodes)]
        return tuple(next(places[node]) for node in self.rank_to_node)

    @cached_property
    def rank_to_lane(self) -> Ints:
        """Lane on which every rank receives."""
        n_lanes = self.n_lanes
        return tuple(local % n_lanes for local in self.rank_to_local)

    @property
    def n_lanes(self) -> int:
        """Return the number of lanes per node."""
        return self.lanes if isinstance(self.lanes, int) else len(self.lanes)

    @property
    def lane_rates(self) -> Ints:
        """Return the relative rate of every lane; all 1 if only their number is given."""
        return (1,) * self.lanes if isinstance(self.lanes, int) else self.lanes

    @property
    def lane_slowness(self) -> tuple[float, ...]:
        """Return the time per byte of every lane, relative to that of the fastest lane."""
        return tuple(max(self.lane_rates) / rate for rate in self.lane_rates)

    @property
    def rank_to_core(self) -> Ints:
        """Core of every rank, numbered within its node, if ranks run on the first cores.

        Plans that leave free cores unused have this placement. Passes that use free cores for
        communication spread the ranks over the node. The column ``rank_core`` of such a plan
        gives the core of every rank.
        """
        return self.rank_to_local

    @cached_property
    def rank_to_numa(self) -> Ints:
        """NUMA domain of every rank, numbered within its node, on the cores of `rank_to_core`.

        After passes that spread the ranks, the domains of the plan's ``rank_core`` can differ.
        """
        n_domains, n_cores = self.numa_domains, self.cores_per_node
        return tuple(core * n_domains // n_cores for core in self.rank_to_core)


def place_ranks(rank_to_node: Ints) -> tuple[Ints, Literal["block", "cyclic"] | Ints]:
    """Return the number of ranks per node and the order of ranks, by name if it has one.

    Examples
    --------
    >>> place_ranks((0, 1, 0, 1)), place_ranks((0, 1, 1, 0))
    (((2, 2), 'cyclic'), ((2, 2), (0, 1, 1, 0)))
    """
    used = Counter(rank_to_node)
    room = tuple(used[node] for node in range(len(used)))
    for name in ("block", "cyclic"):
        machine = Machine(nodes=len(room), ranks_per_node=room, rank_order=name)
        if machine.rank_to_node == rank_to_node:
            return room, name
    return room, rank_to_node


def _fullest(ranks_per_node: int | Ints) -> int:
    return max(ranks_per_node) if isinstance(ranks_per_node, tuple) else ranks_per_node


def _with_lane_rate(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields with the time per byte of the fastest lane, unless the network has its own."""
    lanes, network = fields.get("lanes"), fields.get("network", {})
    try:
        rates = list(map(parse_rate, lanes)) if isinstance(lanes, list | tuple) else []
    except ValueError:
        return fields  # the check of the field says why
    if not rates:
        return fields
    per_byte = {"G_ns_per_byte": 8e9 / max(rates)}
    if isinstance(network, Network) and "network" not in network.model_fields_set:
        link = network.network.replace(**per_byte)
        return {**fields, "network": network.replace(network=link)}
    given = network.get("network", {}) if isinstance(network, Mapping) else None
    if isinstance(given, Mapping):
        return {**fields, "network": {**network, "network": {**per_byte, **given}}}
    return fields


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `changes` over `base`, mapping by mapping, so that one parameter can be changed."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            # A mapping of another kind has other fields, and replaces the old one.
            is_same = value.get("kind", old.get("kind")) == old.get("kind")
            value = _merge(old, value) if is_same else value
        merged[key] = value
    return merged
