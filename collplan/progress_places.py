"""Processors of ranks and of the threads that make their progress, where cores are to spare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.host.cores import host, pin_thread
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.together import together
from collplan.planner.passes.progress.cores import CorePlacement, Policy
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError
from collplan.specs.machine import place_ranks

DEFAULT_POLICY: Final = "odd_even"
"""Policy by which a rank's thread has its core where nothing says another."""

PLACED: Final[tuple[Policy, ...]] = ("numa", "odd_even")
"""Policies that give a rank a core other than its own."""

Where = tuple[str, tuple[int, ...]]
"""A rank's host, and the processors that it may use."""


@dataclass(frozen=True, slots=True)
class ProgressPlaces:
    """Processors of one rank.

    Parameters
    ----------
    own : int or None
        Where the rank itself computes, if that was said.
    by_policy : mapping of str to int
        Where its thread runs by each policy that gives it a core without a rank; empty if
        there is none.
    n_spare : int
        Communication cores of a node, of the node that has the fewest.
    """

    own: int | None = None
    by_policy: Mapping[str, int] = field(default_factory=dict)
    n_spare: int = 0

    def of(self, policy: str = DEFAULT_POLICY) -> int | None:
        """Return where the thread runs by a policy; None where it has no core of its own."""
        return self.by_policy.get(policy, self.by_policy.get(DEFAULT_POLICY))


def policy_of(spec: PlanSpec) -> str:
    """Return the policy by which a plan's progress has its cores."""
    for choice in spec.passes:
        if choice.name == "place_progress":
            return str(choice.options.get("policy", DEFAULT_POLICY))
    return DEFAULT_POLICY


def find_places(
    comm: Any, nodes: Sequence[int], cores: Sequence[int] | None = None, numa_domains: int = 1
) -> ProgressPlaces:
    """Return where this rank's communication runs; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    nodes : sequence of int
        Equal for ranks of one node.
    cores : sequence of int, optional
        The processor of each core of a node, as `bind` takes them; several may have the
        same. By default the cores of ranks are the processors that they may use.
    numa_domains : int
        Of a node.

    Raises
    ------
    CollplanError
        On all ranks, if a node has more ranks than cores, or a rank may not use its processors.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ProgressPlaces()
    rank: int = comm.rank
    if cores is None:
        everywhere: list[Where] = comm.allgather((host(), tuple(sorted(affinity()))))
        return places_left(everywhere, nodes, numa_domains)[rank]

    def find() -> ProgressPlaces:
        found = places_on(nodes, cores, numa_domains)[rank]
        _require_usable(found)
        return found

    return together(comm, find)


def places_on(
    nodes: Sequence[int], cores: Sequence[int], numa_domains: int = 1
) -> list[ProgressPlaces]:
    """Return the places of all ranks where each core of a node has a processor.

    Raises
    ------
    CollplanError
        If a node has more ranks than cores, or an entry of `cores` is not an integer.

    Examples
    --------
    >>> [(place.own, place.of()) for place in places_on([0, 0, 1], [4, 5, 7])]
    [(4, 7), (5, 7), (4, 5)]
    """
    for i, processor in enumerate(cores):
        if isinstance(processor, bool) or not isinstance(processor, int | np.integer):
            raise CollplanError(f"cores[{i}] is {processor!r}; use the number of a processor")
    names = list(dict.fromkeys(nodes))
    room, order = place_ranks(tuple(names.index(node) for node in nodes))
    if max(room) > len(cores):
        raise CollplanError(
            f"cores: {len(cores)} processors, a node has {max(room)} ranks; name one for each core "
            "of a node, those for communication too"
        )
    placement = CorePlacement.of(
        Machine(
            nodes=len(room),
            ranks_per_node=room,
            rank_order=order,
            cores=len(cores),
            numa_domains=min(numa_domains, max(room)),
        )
    )
    n_spare = min(map(len, placement.free))
    own = [cores[core] for core in placement.application]
    chosen = {policy: placement.progress(policy) for policy in PLACED}
    return [
        ProgressPlaces(
            own[rank],
            {
                policy: cores[core[rank]]
                for policy, core in chosen.items()
                if core[rank] != placement.application[rank]
            },
            n_spare,
        )
        for rank in range(len(nodes))
    ]


def places_left(
    everywhere: Sequence[Where], nodes: Sequence[int] | None = None, numa_domains: int = 1
) -> list[ProgressPlaces]:
    """Return the places of all ranks by the processors that each may use.

    Ranks of a host that may use the same ones have those that they leave free in common, also if
    they are on several nodes of it, as emulated ones are. Ranks that may use some of each
    other's, but not all, are left alone.

    Examples
    --------
    >>> two = [("a", (0, 1, 2)), ("a", (0, 1, 2)), ("b", (0,))]
    >>> [place.of() for place in places_left(two)]
    [2, 2, None]
    """
    found = [ProgressPlaces()] * len(everywhere)
    sets = dict.fromkeys(everywhere)
    mixed = {
        one
        for pair in combinations(sets, 2)
        if pair[0][0] == pair[1][0] and {*pair[0][1]} & {*pair[1][1]}
        for one in pair
    }
    for where in sets:
        ranks = [rank for rank, one in enumerate(everywhere) if one == where]
        if where in mixed or len(ranks) >= len(where[1]):
            continue
        n_nodes = 1 if nodes is None else len({nodes[rank] for rank in ranks})
        n_spare = max(1, (len(where[1]) - len(ranks)) // n_nodes)
        places = places_on([0] * len(ranks), where[1], numa_domains)
        for rank, place in zip(ranks, places, strict=True):
            found[rank] = ProgressPlaces(None, place.by_policy, n_spare)
    least = min(place.n_spare for place in found)
    return [ProgressPlaces(place.own, place.by_policy, least) for place in found]


def _require_usable(places: ProgressPlaces) -> None:
    """Raise where a rank may not use the processors that it is to have."""
    before = affinity()
    try:
        for processor in {places.own, *places.by_policy.values()}:
            if processor is not None:
                pin_thread(processor)
    finally:
        os.sched_setaffinity(0, before)
