"""Schedules of the groups of a component: the best of several searches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.arrays.recent import Recent
from collplan.planner.errors import AlgorithmError
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.memory import require_memory
from collplan.planner.packing.delivery import deliver
from collplan.planner.packing.dissemination import (
    EXPECTS,
    HAS,
    LACKS,
    Hops,
    TimedMessages,
    disseminate,
)
from collplan.planner.packing.distances import distances
from collplan.planner.packing.hops import HopTable, find_hops
from collplan.planner.packing.routing import balanced_ways
from collplan.specs.machines.machine import Machine

KINDS: Final = (
    "allgather",
    "allreduce",
    "alltoall",
    "bcast",
    "gather",
    "reduce",
    "reduce_scatter_block",
    "scatter",
)
"""Collectives that have schedules."""
_BACKWARDS: Final = {"gather": "scatter", "reduce": "bcast", "reduce_scatter_block": "allgather"}
"""Collectives whose schedules are those of others, turned around."""
_VECTORS: Final = ("bcast", "reduce")
_ROOTED: Final = ("gather", "scatter")
_DELIVERED: Final = ("alltoall", *_ROOTED)
MOST_PARTS: Final = 1024
"""Greatest number of parts that is tried for a block or vector."""
MOST_MESSAGES: Final = 1 << 22
"""Greatest number of messages in a schedule."""
SEARCHED_MESSAGES: Final = 1 << 15
"""Number of messages in all searches together that ends the search for a number of parts.

It is doubled for vectors, which need many parts to fill a pipeline.
"""
N_PASSES: Final = 4
MANY_CHUNKS: Final = 1 << 17
"""Number of times that the way of a chunk is chosen, and greatest number of such choices."""
N_TRIES: Final = 8
FEW_CHUNKS: Final = 1 << 12
"""Number of searches for ways, and greatest number of chunks in all of them together."""
SHARING: Final = 1.3
"""Factor by which schedules take longer in which several hops leave a member over one link.

Their messages share links as soon as one of them is late.
"""
_PATIENCES: Final = (1.0, 2.0, math.inf)
_MESSAGE_BYTES: Final = 120


@dataclass(frozen=True, eq=False, repr=False)
class GroupSchedule:
    """TimedMessages of one group in rounds.

    A message sends a chunk that its source has received in earlier rounds, or has from the
    beginning.

    Parameters
    ----------
    kind : str
        Collective.
    n_parts : int
        Number of parts of each block or vector.
    begin : ndarray of int64, shape (n_rounds + 1,)
        Offsets of the rounds, of which the last ones may be empty.
    source, dest, chunk : ndarray of int64, shape (n_messages,)
        Positions at the ends, and chunk of every message.
    n_combining : int
        Number of rounds whose messages are combined with partial results, before those whose
        messages replace them.
    """

    kind: str
    n_parts: int
    begin: Ints
    source: Ints
    dest: Ints
    chunk: Ints
    n_combining: int = 0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        found = sha256(f"{self.kind} {self.n_parts} {self.n_combining}".encode())
        for column in (self.begin, self.source, self.dest, self.chunk):
            found.update(np.ascontiguousarray(column).tobytes())
        object.__setattr__(self, "digest", found.hexdigest()[:24])

    def __repr__(self) -> str:
        """Return a text that is the same for equal schedules only."""
        return f"GroupSchedule({self.kind}, {self.digest})"

    def rounds(self) -> Iterator[slice]:
        """Yield the messages of every round."""
        for low, high in zip(self.begin[:-1].tolist(), self.begin[1:].tolist(), strict=True):
            yield slice(low, high)


@dataclass(frozen=True, eq=False)
class Packing:
    """Schedules of the groups of a component, which share links.

    Parameters
    ----------
    groups : tuple of GroupSchedule
    n_parts : int
        Number of parts of each block or vector.
    ns : float
        Time of the search's model in ns.
    """

    groups: tuple[GroupSchedule, ...]
    n_parts: int
    ns: float


@dataclass(frozen=True)
class Demand:
    """Needs of the groups of a component.

    Parameters
    ----------
    kind : str
        Collective.
    ranks, indptr : ndarray of int64
        Ranks of all groups in CSR form.
    roots : ndarray of int64, shape (n_groups,)
        Position of the root in every group.
    n_bytes : float
        Size of the largest block, or of the vector.
    """

    kind: str
    ranks: Ints
    indptr: Ints
    roots: Ints
    n_bytes: float

    @property
    def key(self) -> tuple[object, ...]:
        """Return what tells demands apart."""
        columns = (self.ranks, self.indptr, self.roots)
        return (self.kind, self.n_bytes, *(np.asarray(c, np.int64).tobytes() for c in columns))


_recent: Final[Recent[tuple[object, ...], Packing]] = Recent(
    1 << 22, lambda packing: 1 + sum(len(one.chunk) for one in packing.groups)
)


def pack(machine: Machine, demand: Demand, n_parts: int | None) -> Packing:
    """Return schedules for the groups of a component that use its links evenly.

    Parameters
    ----------
    machine : Machine
    demand : Demand
    n_parts : int or None
        Number of parts of each block or vector; None for the number with the shortest time.

    Raises
    ------
    AlgorithmError
        If two ranks of a group are on one node, or a schedule has more than `MOST_MESSAGES`
        messages.
    """
    return _recent.find((machine, *demand.key, n_parts), lambda: _pack(machine, demand, n_parts))


def _pack(machine: Machine, demand: Demand, n_parts: int | None) -> Packing:
    table = find_hops(machine, demand.ranks, demand.indptr)
    if table is None:
        raise AlgorithmError(
            f"{demand.kind}/packed: two ranks of a group are on one node, and messages are packed "
            "into links between nodes; use it across nodes, as in {decomposition: hierarchical}"
        )
    limit = machine.network.eager_limit_bytes
    best = _best_parts(_Attempts(table, demand), n_parts, limit)
    if demand.kind in _DELIVERED or (sparse := table.one_per_link()) is None:
        return best
    other = _best_parts(_Attempts(sparse, demand), n_parts, limit)
    return other if other.ns < best.ns * SHARING else best


def _best_parts(search: _Attempts, n_parts: int | None, eager_bytes: int) -> Packing:
    """Return the schedules with the number of parts that has the shortest time."""
    if n_parts is not None:
        return search.best_of(n_parts)
    best, n_searched = None, 0
    most = SEARCHED_MESSAGES * (2 if search.demand.kind in _VECTORS else 1)
    for parts in search.numbers_of_parts(eager_bytes):
        n_searched += search.n_messages(parts)
        if best is not None and n_searched > most:
            break
        found = search.best_of(parts)
        if best is None or found.ns < best.ns * (1 - 1e-3):
            best = found
    assert best is not None
    return best


class _Half(NamedTuple):
    """Messages between members in the order in which they are sent.

    Parameters
    ----------
    source, dest, chunk : ndarray of int64, shape (n_messages,)
        Members at the ends, and chunk of every message.
    ns : float
        Time in which all messages arrive, in ns.
    combines : bool
        Whether messages are combined with partial results of their receivers.
    """

    source: Ints
    dest: Ints
    chunk: Ints
    ns: float
    combines: bool


class _Attempts:
    """Searches for the schedules of a demand with different numbers of parts."""

    def __init__(self, table: HopTable, demand: Demand) -> None:
        self.table, self.demand = table, demand
        self.sizes = csr.lengths_of(demand.indptr).astype(np.int64)
        self.first = np.repeat(demand.indptr[:-1], self.sizes)
        self.size = int(self.sizes.max(initial=1))

    def numbers_of_parts(self, eager_bytes: int) -> Iterator[int]:
        """Yield the numbers of parts to try. Only messages above the eager limit wait for turns."""
        kind, n_bytes = self.demand.kind, self.demand.n_bytes
        share = n_bytes / self.size if kind == "allreduce" else n_bytes
        most = min(MOST_PARTS, max(1, int(share / (eager_bytes + 1)))) if kind != "alltoall" else 1
        parts, factor = 1, 4 if kind in _VECTORS else 2
        while parts <= most:
            yield parts
            parts *= factor

    def n_messages(self, n_parts: int) -> int:
        """Return the least number of messages of a schedule."""
        kind = self.demand.kind
        per_rank: Any = n_parts if kind in _VECTORS or kind in _ROOTED else self.sizes * n_parts
        return int(((self.sizes - 1) * per_rank).sum()) * (1 + (kind == "allreduce"))

    def best_of(self, n_parts: int) -> Packing:
        """Return the best schedules found with a number of parts."""
        kind, n_messages = self.demand.kind, self.n_messages(n_parts)
        if n_messages > MOST_MESSAGES:
            raise AlgorithmError(
                f"{kind}/packed: a schedule has {n_messages} messages or more, of at most "
                f"{MOST_MESSAGES}; use another algorithm"
            )
        require_memory(n_messages * _MESSAGE_BYTES, "a schedule", "pack", "use fewer ranks")
        n_bytes = self.demand.n_bytes / n_parts
        if kind == "allreduce":
            share = n_bytes / self.size
            halves = [
                self._half("reduce_scatter_block", n_parts, share),
                self._half("allgather", n_parts, share),
            ]
        else:
            halves = [self._half(kind, n_parts, n_bytes)]
        ns = sum(half.ns for half in halves)
        groups = list(self._in_rounds(n_parts, halves))
        # A component has as many rounds for each of its groups.
        n_rounds = max(len(one.begin) for one in groups)
        groups = [
            replace(one, begin=np.pad(one.begin, (0, n_rounds - len(one.begin)), mode="edge"))
            for one in groups
        ]
        return Packing(tuple(groups), n_parts, ns)

    def _half(self, kind: str, n_parts: int, n_bytes: float) -> _Half:
        """Return the messages of the fastest schedule of a collective."""
        is_turned, forwards = kind in _BACKWARDS, _BACKWARDS.get(kind, kind)
        table = self.table.reversed() if is_turned else self.table
        hops = table.for_chunks(n_bytes)
        if forwards in ("scatter", "alltoall"):
            messages, ns = self._delivered(forwards, hops, n_parts)
        else:
            messages, ns = self._disseminated(forwards, hops, n_parts)
        source, dest = table.source[messages.hop], table.target[messages.hop]
        rows = source, dest, messages.chunk
        if not is_turned:
            return _Half(*rows, ns, combines=False)
        # The message that arrives last is sent first, in the other direction.
        order = np.argsort(-(messages.start_ns + hops.flight_ns[messages.hop]), kind="stable")
        dest, source, chunk = (column[order] for column in rows)
        return _Half(source, dest, chunk, ns, combines=kind != "gather")

    def _disseminated(self, kind: str, hops: Hops, n_parts: int) -> tuple[TimedMessages, float]:
        """Return the messages of an allgather or a broadcast."""
        state = self._state(kind, n_parts)
        has_rates = len(hops.source) > 0 and np.ptp(hops.flight_ns) > 1e-6 * hops.flight_ns.max()
        distance = _distances(hops) if has_rates else np.zeros((0, 0))
        rate = np.zeros(len(self.first))
        np.add.at(rate, hops.target, 1 / hops.flight_ns)
        need = 1 / np.maximum(rate, 1e-300)
        found = [
            disseminate(hops, self.table.group_of, state, distance, need, patience, 0)
            for patience in (_PATIENCES if has_rates else (math.inf,))
        ]
        return min(found, key=lambda one: one[1])

    def _state(self, kind: str, n_parts: int) -> Ints:
        """Return the state of the chunks at all members before the first message."""
        members = np.arange(len(self.first))
        if kind == "bcast":
            state = np.full((len(members), n_parts), LACKS, dtype=np.int8)
            state[self.demand.indptr[:-1] + self.demand.roots] = HAS
            return state
        sizes = np.repeat(self.sizes, self.sizes)
        state = np.full((len(members), self.size * n_parts), EXPECTS, dtype=np.int8)
        state[np.arange(self.size * n_parts) < sizes[:, None] * n_parts] = LACKS
        for part in range(n_parts):
            state[members, part * sizes + members - self.first] = HAS
        return state

    def _delivered(self, kind: str, hops: Hops, n_parts: int) -> tuple[TimedMessages, float]:
        """Return the messages of an alltoall or a scatter."""
        n_each = self.sizes * (self.sizes if kind == "alltoall" else n_parts)
        group, chunk = csr.expand(n_each)
        start, size = self.demand.indptr[group], self.sizes[group]
        one = chunk // size if kind == "alltoall" else self.demand.roots[group]
        ends = start + one, start + chunk % size
        n_tries = max(1, min(N_TRIES, FEW_CHUNKS // len(chunk)))
        n_passes = max(1, min(N_PASSES, MANY_CHUNKS // len(chunk)))
        ways = [balanced_ways(hops, *ends, n_passes, seed) for seed in range(n_tries)]
        begin, way, _ = min(ways, key=lambda one: float(one[2].max(initial=0.0)))
        messages, ns = deliver(hops, begin, way)
        return messages._replace(chunk=chunk[messages.chunk]), ns

    def _in_rounds(self, n_parts: int, halves: list[_Half]) -> Iterator[GroupSchedule]:
        """Yield the schedule of every group, for messages of one or two halves."""
        group_of, n_groups = self.table.group_of, len(self.sizes)
        by_group = [csr.group_by(group_of[half.source], n_groups) for half in halves]
        for number, low in enumerate(self.demand.indptr[:-1].tolist()):
            columns: list[tuple[Ints, ...]] = []
            n_rounds = n_combining = 0
            for half, (order, bounds) in zip(halves, by_group, strict=True):
                own = order[bounds[number] : bounds[number + 1]]
                rows = half.source[own] - low, half.dest[own] - low, half.chunk[own]
                rounds = _rounds_of(*rows, int(self.sizes[number]))
                columns.append((*rows, rounds + n_rounds))
                n_rounds += int(rounds.max(initial=-1)) + 1
                n_combining += n_rounds if half.combines else 0
            source, dest, chunk, in_round = map(np.concatenate, zip(*columns, strict=True))
            begin = csr.indptr_of(in_round, n_rounds)
            kind = self.demand.kind
            yield GroupSchedule(kind, n_parts, begin, source, dest, chunk, n_combining)


def _distances(hops: Hops) -> Floats:
    """Return the time from member to member over free links."""
    n_members = len(hops.out_begin) - 1
    return distances(hops.source, hops.target, hops.flight_ns, n_members)


def _rounds_of(source: Ints, dest: Ints, chunk: Ints, size: int) -> Ints:
    """Return the round of every message of a group.

    A round ends before a message of a chunk that its source or its target receives in it, and
    before a second message between two members.
    """
    n_chunks = int(chunk.max(initial=0)) + 1
    ends = csr.joint_key(np.concatenate((source, dest)), np.tile(chunk, 2), n_chunks)
    kept, place = np.unique(ends, return_inverse=True)
    rounds, last = np.zeros(len(source), dtype=np.int64), np.full(len(kept), -1, dtype=np.int64)
    used = np.full(size * size, -1, dtype=np.int64)
    _number_rounds(place.reshape(2, -1), csr.joint_key(source, dest, size), last, used, rounds)
    return rounds


@compiled
def _number_rounds(place: Ints, pair: Ints, last: Ints, used: Ints, rounds: Ints) -> None:
    """Write the round of every message.

    `last` and `used` have the last round of every chunk at a member, and of every pair of members.
    """
    now = 0
    for i in range(len(pair)):
        if used[pair[i]] == now or last[place[0, i]] == now or last[place[1, i]] == now:
            now += 1
        rounds[i] = last[place[1, i]] = used[pair[i]] = now
