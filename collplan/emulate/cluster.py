"""The description of an emulated cluster: nodes, ranks, lanes, and rates of lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collplan.specs.errors import CollplanError
from collplan.specs.explaining import explaining
from collplan.specs.syntax import numbers
from collplan.specs.syntax.documents import parse_yaml, read_document
from collplan.specs.topology import FatTree


class EmulationError(CollplanError):
    """Error for a cluster with an invalid description, or one that this machine cannot emulate."""


MAX_NODES: Final = 1000
"""Largest number of nodes; a switch is a Linux bridge, which has 1,023 ports."""
MAX_LANES: Final = 64
"""Largest number of lanes; UCX, which stripes for MPICH, works with 100 but not 250 interfaces."""
MIN_RATE: Final = 10**4
MAX_RATE: Final = 10**11
"""Largest rate in bits per second; above it, the 32-bit limit of the queue in tc overflows."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes joined by lanes, with ranks on them.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    ranks_per_node : int or tuple of int
        Number of ranks on every node, or one number for each node.
    lanes : int
        Number of network interfaces per node, each of which has its own switch.
    rate_bits_per_s : int or tuple of int
        Rate of every lane in each direction, with headers, or one rate for each lane.
    rank_order : "block", "cyclic" or tuple of int
        Order of the ranks, as in `collplan.specs.Machine`.
    striped : bool
        Whether the MPI library chooses lanes; otherwise each rank uses one lane.
    topology : FatTree or None
        Two levels of switches on every lane: leaf switches, and one switch to which each leaf
        switch has one link. Nodes are the first hosts of the tree. None for one switch per lane.

    Raises
    ------
    EmulationError
        If a number is out of bounds.
    """

    nodes: int
    ranks_per_node: int | tuple[int, ...]
    lanes: int
    rate_bits_per_s: int | tuple[int, ...]
    rank_order: str | tuple[int, ...] = "block"
    striped: bool = False
    topology: FatTree | None = None

    def __post_init__(self) -> None:
        for field, value, least, most in (
            ("nodes", self.nodes, 1, MAX_NODES),
            ("lanes", self.lanes, 1, MAX_LANES),
            *(("rate", rate, MIN_RATE, MAX_RATE) for rate in set(self.lane_rates)),
        ):
            if not least <= value <= most:
                unit = " bit/s" if field == "rate" else ""
                raise EmulationError(
                    f"{field}: {value}{unit} cannot be emulated; give {least} to {most}{unit}"
                )
        if len(self.lane_rates) != self.lanes:
            raise EmulationError(
                f"rate: {len(self.lane_rates)} rates for {self.lanes} lanes; give one rate, or one "
                f"for each lane"
            )
        for problem in self._misfits():
            raise EmulationError(f"topology: {problem}")

    def _misfits(self) -> Iterator[str]:
        """Generate descriptions of the parts of the topology that cannot be emulated."""
        tree = self.topology
        if tree is None:
            return
        if tree.n_levels != 2 or tree.parents != (1, 1):
            yield (
                "only two levels with one link up from each leaf switch are emulated; give "
                "{kind: fat_tree, down: [NODES, LEAVES], up: [1, 1], oversubscription: RATIO}"
            )
            return
        if tree.bandwidth is not None or tree.lanes != "planes" or any(tree.level_latencies):
            yield (
                "links have the rates of lanes, divided by oversubscription, no latency, and a "
                "network per lane; leave out bandwidth, latency_ns and lanes"
            )
        if self.nodes > tree.n_hosts:
            yield f"has {tree.n_hosts} hosts for {self.nodes} nodes; give more hosts"
        for rate in self.uplink_rates:
            if not MIN_RATE <= rate <= MAX_RATE:
                yield (
                    f"a leaf's link of {rate} bit/s cannot be emulated; give {MIN_RATE} to "
                    f"{MAX_RATE} bit/s by oversubscription"
                )

    @property
    def leaf_of(self) -> tuple[int, ...]:
        """Return the leaf switch of every node; empty without a topology."""
        if self.topology is None:
            return ()
        return tuple(node // self.topology.down[0] for node in range(self.nodes))

    @property
    def uplink_rates(self) -> tuple[int, ...]:
        """Return the rate of a leaf's uplink for every lane, in bit/s; empty without topology."""
        if self.topology is None:
            return ()
        return tuple(round(self.topology.level_rates(rate)[1]) for rate in self.lane_rates)

    @property
    def lane_rates(self) -> tuple[int, ...]:
        """Return the rate of every lane in bit/s."""
        rates = self.rate_bits_per_s
        return (rates,) * self.lanes if isinstance(rates, int) else rates


def parse_rate(text: str) -> int:
    """Parse a rate, such as ``"100Mbit"`` or ``"12.5MB/s"``, to bits per second.

    Raises
    ------
    EmulationError
        If `text` is not a rate, or not a whole number of bits per second.
    """
    try:
        return numbers.parse_rate(text)
    except ValueError as error:
        raise EmulationError(f"rate: {error}") from None


def parse_rates(text: str) -> int | tuple[int, ...]:
    """Parse a rate, such as ``"100Mbit"``, or a list of rates of all lanes to bits per second.

    Raises
    ------
    EmulationError
        If a part of the text is not a rate.

    Examples
    --------
    >>> parse_rates("100Mbit"), parse_rates("100Mbit,12.5MB/s")
    (100000000, (100000000, 100000000))
    """
    rates = tuple(parse_rate(word) for word in text.split(","))
    return rates if len(rates) > 1 else rates[0]


def parse_topology(text: str) -> FatTree:
    """Parse a topology, given as in a spec or as the name of a file, to a fat tree.

    Raises
    ------
    CollplanError
        If the topology is not a fat tree.

    Examples
    --------
    >>> parse_topology("{kind: fat_tree, down: [2, 2], oversubscription: 2}").parents
    (1, 1)
    """
    fields = parse_yaml(text, "--topology")
    if isinstance(fields, str):
        fields = read_document(Path(fields), "topology")
    with explaining(FatTree, error=EmulationError, before="--topology: "):
        return FatTree.model_validate(fields)
