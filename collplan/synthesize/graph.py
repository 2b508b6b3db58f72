"""The graph on which schedules run: pairs of ranks that may communicate, and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from collplan.planner.collective.bounds import Bounds
from collplan.specs import Machine
from collplan.specs.errors import CollplanError

MAX_RANKS: Final = 16
"""Largest number of ranks of a search; searches with more ranks do not finish."""

Pair = tuple[int, int]
"""Sender and receiver."""


@dataclass(frozen=True, slots=True)
class GraphResource:
    """One direction of a rank or lane, with a lower bound on its load.

    Parameters
    ----------
    name : str
        Kind of the resource for reports: ``"rank"`` or ``"lane"``.
    pairs : frozenset of (int, int)
        Pairs of ranks whose messages use the resource, sender first.
    bound : int
        Lower bound on the chunks that the busiest resource of this kind carries in any schedule.
    """

    name: str
    pairs: frozenset[Pair]
    bound: int


@dataclass(frozen=True)
class RankGraph:
    """Ranks and the pairs of ranks that may communicate.

    Parameters
    ----------
    name : str
        Name for reports.
    n_ranks : int
        Number of ranks.
    widths : mapping of (int, int) to int
        Width of every pair that may communicate, sender first. With `has_links`, it is the
        number of chunks that the pair carries in one chunk time.
    has_links : bool
        Whether pairs are links of given widths. If not, all pairs may communicate, and bytes
        are counted per rank and per lane.
    ports : int or None
        Number of partners to which a rank may send in a round, and from which it may receive;
        None for any number.
    resources : tuple of GraphResource
        Ranks and lanes whose loads over all rounds are limited.
    is_rotational : bool
        Whether the graph stays the same if every rank becomes the next one.
    """

    name: str
    n_ranks: int
    widths: Mapping[Pair, int] = field(hash=False)
    has_links: bool
    ports: int | None
    resources: tuple[GraphResource, ...] = ()
    is_rotational: bool = False

    def reversed(self) -> RankGraph:
        """Return the graph with all pairs reversed, for schedules that run backwards."""
        turned = tuple(
            GraphResource(one.name, frozenset((b, a) for a, b in one.pairs), one.bound)
            for one in self.resources
        )
        widths = {(b, a): width for (a, b), width in self.widths.items()}
        return RankGraph(
            self.name, self.n_ranks, widths, self.has_links, self.ports, turned, self.is_rotational
        )

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each rank, the ranks from which it may receive."""
        ranks = range(self.n_ranks)
        return tuple(tuple(a for a in ranks if (a, b) in self.widths) for b in ranks)

    @cached_property
    def distance(self) -> tuple[tuple[int | None, ...], ...]:
        """Return the number of links from each rank (row) to each rank; None without a path."""
        return tuple(self._distances_from(rank) for rank in range(self.n_ranks))

    def _distances_from(self, rank: int) -> tuple[int | None, ...]:
        found: list[int | None] = [None] * self.n_ranks
        found[rank], reached, n = 0, [rank], 0
        while reached:
            n += 1
            pairs = [pair for pair in self.widths if pair[0] in reached and found[pair[1]] is None]
            reached = sorted({b for _, b in pairs})
            for b in reached:
                found[b] = n
        return tuple(found)


def machine_graph(machine: Machine, ports: int, bounds: Bounds) -> RankGraph:
    """Return the graph of a machine, in which all ranks may communicate through ports and lanes.

    Parameters
    ----------
    machine : Machine
        Machine of the ranks.
    ports : int
        Number of partners of a rank per round and direction.
    bounds : Bounds
        Lower bounds of the collective, with one byte per chunk.

    Examples
    --------
    >>> from collplan.planner.collective.bounds import lower_bounds
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 2, "ranks_per_node": 2},
    ...     "collective": {"kind": "bcast", "count": 3, "datatype": "int8"},
    ... })
    >>> graph = machine_graph(spec.machine, 1, lower_bounds(spec))
    >>> [one.bound for one in graph.resources if one.name == "lane"]
    [3, 3, 3, 3]
    """
    ranks = range(machine.n_ranks)
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    lanes = f"{machine.n_lanes} {'lanes' if machine.n_lanes > 1 else 'lane'}"
    name = f"{machine.n_ranks} ranks on {machine.nodes} nodes with {lanes}"
    if machine.nodes == 1:
        name = f"{machine.n_ranks} ranks on one node"
    is_rotational = machine.nodes in (1, machine.n_ranks)
    return RankGraph(
        f"{name}, {ports} {'ports' if ports > 1 else 'port'}",
        machine.n_ranks,
        dict.fromkeys(pairs, 1),
        has_links=False,
        ports=ports,
        resources=tuple(_resources(machine, pairs, bounds)),
        is_rotational=is_rotational,
    )


def _resources(machine: Machine, pairs: list[Pair], bounds: Bounds) -> Iterator[GraphResource]:
    for rank in range(machine.n_ranks):
        sent = frozenset(pair for pair in pairs if pair[0] == rank)
        received = frozenset(pair for pair in pairs if pair[1] == rank)
        yield GraphResource("rank", sent, bounds.bytes_sent_per_rank)
        yield GraphResource("rank", received, bounds.bytes_received_per_rank)
    if machine.nodes == 1:
        return
    node, lane = machine.rank_to_node, machine.rank_to_lane
    crossing = [(a, b) for a, b in pairs if node[a] != node[b]]
    for home in range(machine.nodes):
        for rail in range(machine.n_lanes):
            # A message uses the lane of its destination at both ends.
            sent = frozenset((a, b) for a, b in crossing if node[a] == home and lane[b] == rail)
            received = frozenset((a, b) for a, b in crossing if node[b] == home and lane[b] == rail)
            yield GraphResource("lane", sent, bounds.bytes_sent_per_lane)
            yield GraphResource("lane", received, bounds.bytes_received_per_lane)


def link_graph(name: str, widths: Mapping[Pair, int], n_ranks: int, ports: int | None) -> RankGraph:
    """Return the graph of given links.

    Raises
    ------
    CollplanError
        If links name ranks that do not exist, or do not connect every rank to every other.
    """
    highest = max((max(pair) for pair in widths), default=-1)
    if highest >= n_ranks:
        raise CollplanError(
            f"--links: {name} has a link of rank {highest}, the spec's machine has {n_ranks} "
            f"ranks; give a machine with {highest + 1}, or other links"
        )
    turned = {((a + 1) % n_ranks, (b + 1) % n_ranks): width for (a, b), width in widths.items()}
    graph = RankGraph(
        f"links of {name}" + (f", {ports} ports" if ports else ""),
        n_ranks,
        dict(widths),
        has_links=True,
        ports=ports,
        is_rotational=turned == dict(widths),
    )
    for source, row in enumerate(graph.distance):
        if None in row:
            raise CollplanError(
                f"--links: {name} has no way from rank {source} to rank {row.index(None)}; "
                f"add links, or give a machine with fewer ranks"
            )
    return graph
