"""Processors of ranks and of their progress threads on nodes with more cores than ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.host.cores import host, pin_thread
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.passes.progress.cores import CorePlacement, Policy
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.machines.machine import place_ranks

DEFAULT_POLICY: Final = "odd_even"
"""Policy that assigns cores to progress threads if a plan does not name one."""

PLACED: Final[tuple[Policy, ...]] = ("numa", "odd_even")
"""Policies that assign to a rank's progress thread a core other than the rank's own."""

Where = tuple[str, tuple[int, ...]]
"""Host of a rank, and the processors in its affinity mask."""


@dataclass(frozen=True, slots=True)
class ProgressPlaces:
    """Processors of one rank and of its progress thread.

    Parameters
    ----------
    own : int or None
        Processor of the rank itself; None if the caller did not list the processors of cores.
    by_policy : mapping of str to int
        Processor of the progress thread by policy. It contains only policies that assign a core
        without a rank, and is empty if there is no such core.
    n_spare : int
        Number of communication cores on the node that has the fewest.
    """

    own: int | None = None
    by_policy: Mapping[str, int] = field(default_factory=dict)
    n_spare: int = 0

    def of(self, policy: str = DEFAULT_POLICY) -> int | None:
        """Return the processor of the progress thread under a policy; None if it has no own core.

        A policy that has no entry is replaced by `DEFAULT_POLICY`.
        """
        return self.by_policy.get(policy, self.by_policy.get(DEFAULT_POLICY))


def policy_of(spec: PlanSpec) -> str:
    """Return the policy that places the progress of a plan on cores."""
    for choice in spec.passes:
        if choice.name == "place_progress":
            return str(choice.options.get("policy", DEFAULT_POLICY))
    return DEFAULT_POLICY


def find_places(
    comm: Any, nodes: Sequence[int], cores: Sequence[int] | None = None, numa_domains: int = 1
) -> ProgressPlaces:
    """Return the processors of this rank and of its progress thread; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    nodes : sequence of int
        Node of each rank.
    cores : sequence of int, optional
        Processor id of each core of a node, as for `bind`; cores may share a processor. By
        default, the affinity masks of the ranks determine the cores, see `places_left`.
    numa_domains : int
        Number of NUMA domains per node.

    Returns
    -------
    ProgressPlaces
        Places of this rank; without any processor if the system cannot pin threads.

    Raises
    ------
    CollplanError
        On all ranks, if a node has more ranks than cores, if an entry of `cores` is not an
        integer, or if a rank may not use its processors.
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

    return RollCall(comm, None, "use the cores").together(find)


def places_on(
    nodes: Sequence[int], cores: Sequence[int], numa_domains: int = 1
) -> list[ProgressPlaces]:
    """Return the places of all ranks, given the processor of each core of a node.

    Parameters
    ----------
    nodes : sequence of int
        Node of each rank.
    cores : sequence of int
        Processor id of each core of a node, the same for all nodes.
    numa_domains : int
        Number of NUMA domains per node, of which at most one per rank is used.

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
            raise CollplanError(
                f"cores[{i}] is {show_value(processor)}; use the number of a processor"
            )
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
    """Return the places of all ranks, given the affinity masks of the ranks.

    Ranks of a host with equal masks share the processors of the mask that remain without a rank.
    This also holds if the host emulates several nodes; then `n_spare` is the number of these
    processors per node, and at least 1. Ranks get no processors if their mask overlaps a
    different mask of the same host.

    Parameters
    ----------
    everywhere : sequence of (str, tuple of int)
        Host and affinity mask of each rank.
    nodes : sequence of int, optional
        Node of each rank. By default, each group of ranks with equal masks is on one node.
    numa_domains : int
        Number of NUMA domains per node.

    Returns
    -------
    list of ProgressPlaces
        Places by rank, none of which has an `own` processor.

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
    """Raise an error if this rank may not use the processors assigned to it."""
    before = affinity()
    try:
        for processor in {places.own, *places.by_policy.values()}:
            if processor is not None:
                pin_thread(processor)
    finally:
        os.sched_setaffinity(0, before)
