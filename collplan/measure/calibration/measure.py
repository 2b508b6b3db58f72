"""Measure everything that the cost model has parameters for, on the ranks that run."""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from statistics import median
from typing import Any, Final, cast

from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.host.cores import host, ranks_per_core, share_cores_as
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.host.topology import domains_of
from collplan.executors.mpi.together import leave_cores
from collplan.measure.calibration.local_timing import LocalTimer
from collplan.measure.calibration.measurements import (
    LINKS,
    THOROUGH,
    Effort,
    LanesAtOnce,
    LinkClass,
    Measurements,
    PingPong,
    Place,
    Rounds,
)
from collplan.measure.calibration.pair_timing import Entries, PairTimer, bind_messages, burst_plan
from collplan.measure.lanes import node_of_ranks
from collplan.measure.timing import everywhere, library_name, time_in_turns
from collplan.planner import compile_plan
from collplan.specs import PlanSpec


def find_place(comm: MPI.Intracomm, lanes: int | None) -> Place:
    """Return the places of the ranks, the same on every rank; collective over `comm`.

    Ranks that can share memory share a node. Emulated nodes, which run under one kernel,
    share its processors.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    lanes : int or None
        Lanes per node, if known.
    """
    lowest = node_of_ranks(comm)
    nodes = list(dict.fromkeys(lowest))
    rank_to_node = [nodes.index(rank) for rank in lowest]
    own = affinity()
    seen: list[tuple[str, set[int], tuple[int, ...]]] = comm.allgather(
        (host(), own, domains_of(own))
    )
    hosts = {name for name, _, _ in seen}
    processors = len(set().union(*(own for _, own, _ in seen)))
    shared = len(hosts) == 1 and (len(nodes) > 1 or comm.size > processors)
    domains = [here[0] if len(here) == 1 else None for _, _, here in seen]
    numa_domains, rank_to_numa = _arrange(rank_to_node, domains)
    return Place(
        rank_to_node=tuple(rank_to_node),
        rank_to_numa=rank_to_numa,
        numa_domains=numa_domains,
        lanes=lanes,
        processors=processors if shared else None,
        ranks_per_core=ranks_per_core(comm),
    )


def _arrange(rank_to_node: list[int], domains: list[int | None]) -> tuple[int, tuple[int, ...]]:
    """Return the number of NUMA domains per node, and the domain of every rank in its node.

    In a machine file, ranks take the cores in order, and domains are contiguous blocks of
    cores. If ranks are bound in another way, or not at all, all are in one domain.
    """
    one = (1, (0,) * len(domains))
    if None in domains:
        return one
    by_node: defaultdict[int, list[int | None]] = defaultdict(list)
    for node, domain in zip(rank_to_node, domains, strict=True):
        by_node[node].append(domain)
    fullest = max(by_node.values(), key=len)
    n_domains, cores = len(set(fullest)), len(fullest)
    locals_seen = [0] * len(by_node)
    rank_to_numa = []
    for node, domain in zip(rank_to_node, domains, strict=True):
        numa = locals_seen[node] * n_domains // cores
        locals_seen[node] += 1
        names = list(dict.fromkeys(by_node[node]))
        if numa >= len(names) or names[numa] != domain:
            return one
        rank_to_numa.append(numa)
    return n_domains, tuple(rank_to_numa)


Pair = tuple[int, int]

_MOST_AT_ONCE: Final = 8
_AT_ONCE_S: Final = 0.02
_AT_ONCE_MESSAGES: Final = 4
_BARRIERS: Final = 50


def measure_machine(
    comm: MPI.Intracomm,
    *,
    lanes: int | None,
    effort: Effort,
    advance: Callable[[], object],
) -> Measurements:
    """Measure messages, copies and reductions; collective over `comm`.

    While two ranks are timed, the others sleep. Messages are timed in plans that the engine
    runs, because the way it waits is part of their cost.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of at least two ranks.
    lanes : int or None
        Lanes per node, if known.
    effort : Effort
        Limits of the time to measure; `QUICK` is enough to test that measuring works.
    advance : callable
        Function called at most `effort.n_steps` times, to show progress.

    Returns
    -------
    Measurements
        All measurements, the same on every rank.

    Raises
    ------
    LaunchError
        If there is only one rank.
    """
    if comm.size < 2:
        raise LaunchError("calibration: one rank has nobody to send to; start 2 or more, as -n 2")
    place = find_place(comm, lanes)
    messages = _MessageTimer(comm, place, effort, advance)
    messages.take_turn()
    at_once = _lanes_at_once(comm, place, effort, messages.entries["ping_pongs"])
    advance()
    rounds = _rounds(comm) if place.ranks_per_core > 1 else None
    # Disturbances last for seconds, so other measurements lie between the turns.
    while messages.n_turns < effort.turns - 1:
        messages.take_turn()
    local = LocalTimer(comm, effort)
    work = [*local.alone(), *local.together(_neighbors(place))]
    advance()
    while messages.n_turns < effort.turns:
        messages.take_turn()
    if comm.rank > 0:
        return everywhere(comm, None)
    measured = Measurements(
        **_origin(),
        place=place,
        lanes_at_once=tuple(at_once),
        local_work=tuple(work),
        rounds=rounds,
        **messages.entries,
    )
    return everywhere(comm, measured)


def _origin() -> dict[str, Any]:
    """Return where and when the measurements are made, as text."""
    return {
        "host": f"{platform.node()} ({platform.machine()}, {os.cpu_count()} processors)",
        "mpi": library_name(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


class _MessageTimer:
    """Measure the messages between some pairs of ranks of every class of links, turn by turn.

    Parameters
    ----------
    comm, place, effort, advance
        As in `measure_machine`, with the places of the ranks.

    Attributes
    ----------
    entries : dict
        Measurements of all turns so far, the same on all ranks.
    n_turns : int
        Number of turns so far.
    """

    def __init__(
        self, comm: MPI.Intracomm, place: Place, effort: Effort, advance: Callable[[], object]
    ) -> None:
        self._comm, self._place, self._effort, self._advance = comm, place, effort, advance
        self._limits: dict[LinkClass, int] = {}
        self.entries: Entries = defaultdict(list)
        self.n_turns = 0

    def take_turn(self) -> None:
        """Measure all pairs once; collective."""
        for link in LINKS:
            for pair in choose_pairs(self._place, link)[: self._effort.pairs]:
                limit, turn = self._limits.get(link), self.n_turns
                found, self._limits[link] = _time_pair(
                    self._comm, link, pair, turn, self._effort, limit
                )
                for name, entries in found.items():
                    self.entries[name] += entries
                self._advance()
        self.n_turns += 1


def choose_pairs(place: Place, link: LinkClass) -> list[Pair]:
    """Return pairs of ranks connected by a class of links; pairs without common ranks come first.

    Examples
    --------
    >>> place = Place(rank_to_node=(0, 0, 1, 1), rank_to_numa=(0, 0, 0, 0))
    >>> choose_pairs(place, "network")
    [(0, 2), (1, 3), (0, 3), (1, 2)]
    >>> choose_pairs(place, "node")
    []
    """

    def distance(pair: Pair) -> LinkClass:
        if place.rank_to_node[pair[0]] != place.rank_to_node[pair[1]]:
            return "network"
        return "numa" if place.rank_to_numa[pair[0]] == place.rank_to_numa[pair[1]] else "node"

    fresh: list[Pair] = []
    others: list[Pair] = []
    used: set[int] = set()
    for pair in combinations(range(len(place.rank_to_node)), 2):
        if distance(pair) != link:
            continue
        if used.isdisjoint(pair):
            used.update(pair)
            fresh.append(pair)
        elif len(others) < THOROUGH.pairs:
            others.append(pair)
    return fresh + others


def _time_pair(
    comm: MPI.Intracomm, link: LinkClass, pair: Pair, turn: int, effort: Effort, limit: int | None
) -> tuple[Entries, int]:
    """Return the times of two ranks and the eager limit between them, the same on all ranks."""
    part = _split(comm, 0 if comm.rank in pair else None)
    measured: tuple[Entries, int] | None = None
    if part != MPI.COMM_NULL:
        share_cores_as(part, comm)
        timer = PairTimer(part, link, pair, turn, effort)
        measured = timer.entries, timer.run(limit)
        part.Free()
    leave_cores(comm)
    return everywhere(comm, measured, root=pair[0])


def _split(comm: MPI.Intracomm, colour: int | None) -> MPI.Intracomm:
    """Return the communicator of this rank's color, in rank order; ``COMM_NULL`` without color."""
    part = comm.Split(MPI.UNDEFINED if colour is None else colour, key=comm.rank)
    return cast("MPI.Intracomm", part)


def _neighbors(place: Place) -> list[int]:
    """Return the ranks of rank 0's node, at most as many as there are processors to share."""
    mine = [rank for rank, node in enumerate(place.rank_to_node) if node == place.rank_to_node[0]]
    return mine if place.processors is None else mine[: place.processors]


def _lanes_at_once(
    comm: MPI.Intracomm, place: Place, effort: Effort, ping_pongs: Sequence[PingPong]
) -> list[LanesAtOnce]:
    """Return the times of 1, 2, ... ranks of the first node that send to the second at once."""
    senders, receivers = (
        [rank for rank, node in enumerate(place.rank_to_node) if node == which] for which in (0, 1)
    )
    most = min(len(senders), len(receivers), _MOST_AT_ONCE)
    lasting = min(_AT_ONCE_S, effort.longest_s)
    between = [one for one in ping_pongs if one.link == "network" and one.bytes]
    longest = max(between, key=lambda entry: entry.bytes, default=None)
    ns_per_byte = 0.0 if longest is None else 1e9 * median(longest.seconds) / longest.bytes
    fitting = lasting * 1e9 / (_AT_ONCE_MESSAGES * (ns_per_byte or 1))
    n_bytes = max(1 << 12, min(1 << 20, int(fitting)))
    found = []
    for k in range(1, most + 1):
        for factor in (1, 3):
            pairs = list(zip(senders[:k], receivers[:k], strict=True))
            seconds = _send_at_once(comm, pairs, n_bytes, factor * _AT_ONCE_MESSAGES, effort)
            total = factor * _AT_ONCE_MESSAGES * n_bytes
            found.append(LanesAtOnce(ranks=k, bytes=total, seconds=seconds))
    return found


def _rounds(comm: MPI.Intracomm) -> Rounds:
    """Return the times of a barrier by dissemination among all ranks."""
    spec = PlanSpec.model_validate(
        {
            "machine": {"ranks_per_node": comm.size},
            "collective": {"kind": "barrier"},
            "algorithms": "dissemination",
        }
    )
    with bind(compile_plan(spec, rank=comm.rank), comm) as barrier:
        seconds = time_in_turns(comm, [barrier], _BARRIERS)
    leave_cores(comm)
    return Rounds(rounds=(comm.size - 1).bit_length(), seconds=tuple(seconds[0].tolist()))


def _send_at_once(
    comm: MPI.Intracomm, pairs: Sequence[Pair], n_bytes: int, n_messages: int, effort: Effort
) -> tuple[float, ...]:
    """Return the time of the slowest pair in s for each repetition, the same on all ranks."""
    mine = next((i for i, pair in enumerate(pairs) if comm.rank in pair), None)
    all_at_once = _split(comm, None if mine is None else 0)
    own = _split(comm, mine)
    seconds: list[float] = []
    if mine is not None:
        share_cores_as(own, comm)
        with bind_messages(burst_plan(n_bytes, n_messages), own) as exchange:
            for _ in range(1 + effort.least):
                all_at_once.Barrier()
                begin = time.perf_counter()
                exchange()
                seconds.append(all_at_once.allreduce(time.perf_counter() - begin, MPI.MAX))
        own.Free()
        all_at_once.Free()
    leave_cores(comm)
    return everywhere(comm, tuple(seconds[1:]), root=pairs[0][0])
