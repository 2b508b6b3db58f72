"""From components to messages and local steps of elements, for all ranks at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from collplan.planner.algorithms.chunks import Layout, Listed, Packed
from collplan.planner.algorithms.registry import Algorithm
from collplan.planner.algorithms.rounds import Group
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.locations import SCRATCH_STRIDE
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.lowering.address import (
    MAX_SCRATCH,
    Located,
    concatenated,
    locate,
    squeeze_scratch,
)
from collplan.planner.lowering.collect import IN_ORDER, RUNS, Collected, collect
from collplan.planner.lowering.collect_relative import UNLIKE, collect_relative, motions
from collplan.planner.plan.phases import Phase, Trees
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Op

Positions = tuple[int, ...]
"""Positions of a group, ascending."""


class Table:
    """Columns of rows: arrays, and `Pieces` with a row each."""

    def take(self, rows: Ints) -> Self:
        """Return the given rows, in the given order."""
        taken = {
            name: column.take(rows) if isinstance(column, Pieces) else column[rows]
            for name, column in vars(self).items()
        }
        return type(self)(**taken)

    def select(self, mask: Bools) -> Self:
        """Return the rows in `mask`."""
        return self if mask.all() else self.take(np.flatnonzero(mask))


@dataclass
class MessageTable(Table):
    """Messages of all rounds, in program order; extents per message."""

    phase: Ints
    round: Ints
    source: Ints
    dest: Ints
    incoming_left: Bools
    combining: Bools
    ordered: Bools
    read: Pieces
    write: Pieces
    combine: Pieces


@dataclass
class LocalTable(Table):
    """Copies and reductions of all rounds, in program order; `read` is left, then right."""

    phase: Ints
    round: Ints
    rank: Ints
    op: Ints
    read: Pieces
    write: Pieces


Shape = tuple[int, int]
"""Size and root of a group."""
Sends = Mapping[Shape, Sequence[int]]
"""Rounds in which messages are sent, by the shape of a group."""


class Tables(NamedTuple):
    """Tables of messages and local steps, with the sizes of the buffers they need.

    Parameters
    ----------
    messages : MessageTable
    steps : LocalTable
    scratch_sizes : ndarray of int64, shape (n_ranks,)
        Elements of scratch per rank; what nobody touches takes no room.
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Elements of every node's shared buffer.
    phases : tuple of Phase
        What the messages and steps belong to.
    """

    messages: MessageTable
    steps: LocalTable
    scratch_sizes: Ints
    shared_sizes: Ints
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Stated:
    """A component and what computes it."""

    component: Component
    algorithm: Algorithm
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_pairs(self) -> int:
        """Return how many messages an algorithm of p² of them goes through, 0 for others."""
        size = int(self.component.groups.sizes.max(initial=0))
        return int(size * (size - 1) * self._per_pair)

    @property
    def least_messages(self) -> int:
        """Return how many messages an algorithm of p² of them sends, 0 for others."""
        sizes = self.component.groups.sizes.astype(np.int64)
        return int((self._n_blocks * (sizes - 1)).sum() * self._per_pair)

    def least_messages_of(self, ranks: Sequence[int]) -> float:
        """Return the share that some ranks have in `least_messages`."""
        groups = self.component.groups
        per_member = self._n_blocks * (groups.sizes - 1) * self._per_pair / groups.sizes
        return float(np.repeat(per_member, groups.sizes)[np.isin(groups.ranks, ranks)].sum())

    @property
    def _n_blocks(self) -> Ints:
        """Number of blocks, or chunks of a vector, per group."""
        sizes = self.component.groups.sizes.astype(np.int64)
        if not self._per_pair or self.component.traits.has_blocks:
            return sizes
        # A vector shorter than the group has one chunk per element.
        return np.minimum(sizes, int(self.component.given.totals.max(initial=0)))

    @property
    def _per_pair(self) -> float:
        return 0.0 if self.component.is_local else self.algorithm.per_pair

    def phase(self, first_round: int = 0, sends: Sends = MappingProxyType({})) -> Phase:
        """Return the phase of a plan that the component becomes.

        Parameters
        ----------
        first_round : int
            Where it begins.
        sends : mapping
            The rounds that send messages, counted from there, by a group's size and root.
        """
        groups, root = self.component.groups, self.component.root
        kind, tree = self.component.kind, self.algorithm.tree
        shapes: dict[Shape, list[tuple[int, ...]]] = {}
        if tree is not None and sends:
            for group, first in enumerate(root.tolist()):
                ranks = tuple(groups[group].tolist())
                shapes.setdefault((len(ranks), first), []).append(ranks)
        trees = (
            Trees.of(kind, tuple(ranks), [first_round + number for number in sends[shape]])
            for shape, ranks in shapes.items()
        )
        return Phase(kind, self.algorithm.name, self.component.role, tree or "", tuple(trees))


def lower(
    parts: Sequence[Stated],
    n_ranks: int,
    n_scratch: int,
    commutative: bool,
    only_ranks: Sequence[int] | None = None,
) -> tuple[MessageTable, LocalTable, Ints, tuple[Phase, ...]]:
    """Turn components into tables of messages and local steps.

    Rounds of a component follow those of the components before it. Empty
    messages and steps are dropped, copies onto themselves, too.

    Parameters
    ----------
    parts : sequence of Stated
        In program order; their place is their phase.
    n_ranks : int
        Ranks of the machine.
    n_scratch : int
        Scratch homes the components use.
    commutative : bool
        Whether operands may be exchanged.
    only_ranks : sequence of int, optional
        Keep only what concerns these ranks, dropping the rest as it comes.

    Returns
    -------
    messages : MessageTable
    steps : LocalTable
    scratch_sizes : ndarray of int64, shape (n_ranks,)
        Scratch each rank needs so far; what nobody touches takes no room.
    phases : tuple of Phase
        What the components become.
    """
    lowering = _Lowering(n_scratch)
    first_round, phases = 0, list[Phase]()
    for phase, part in enumerate(parts):
        n_rounds: dict[Shape, int] = {}
        sends: dict[Shape, list[int]] = {}
        for batch in _batches(part, only_ranks):
            collected = batch.collect(commutative)
            lowering.add(phase, first_round, batch, collected)
            n_rounds[batch.shape], sends[batch.shape] = collected.n_rounds, collected.sends
        for batch in _other_shapes(part, set(n_rounds)):
            collected = batch.collect(commutative)
            n_rounds[batch.shape], sends[batch.shape] = collected.n_rounds, collected.sends
        stated = part.phase(first_round, sends)
        phases.append(stated if only_ranks is None else stated.of_ranks(only_ranks))
        first_round += max(n_rounds.values(), default=0)
    return *lowering.tables(n_ranks), tuple(phases)


@dataclass
class _Batch:
    """Groups of one size and root, on which an algorithm runs at once.

    Member ``g * size + i`` is position i of the batch's group g; `members` are
    their places in the component.
    """

    part: Stated
    groups: Ints
    size: int
    root: int
    only: Positions | None

    @property
    def shape(self) -> Shape:
        """Return the size and root of every group."""
        return self.size, self.root

    def __post_init__(self) -> None:
        component = self.part.component
        starts = component.groups.indptr[self.groups]
        self.members = (starts[:, None] + np.arange(self.size)).ravel()
        self.ranks = component.groups.ranks[self.members]
        self.layouts: list[Layout]
        self.counts: Ints
        if component.traits.is_pairwise:
            self._lay_out_pairs(component)
            return
        n_chunks = parts = self.part.algorithm.n_parts(self.size)
        rows: Ints = self.groups
        if component.traits.has_blocks:
            rows, n_chunks, parts = self.members, self.size, 1
        first_row = np.repeat(np.arange(len(self.groups)) * n_chunks, self.size)
        ends = (component.given, component.received)
        own = [regions.take(rows).cut(parts) for regions in ends if regions is not None]
        self.layouts = [Listed(regions, first_row, n_chunks) for regions in (own[0], own[-1])]
        self.counts = own[0].totals.reshape(len(self.groups), n_chunks)

    def _lay_out_pairs(self, component: Component) -> None:
        assert component.received is not None
        table = component.given
        if isinstance(table, PairTable) and isinstance(component.received, PairTable):
            # All ranks exchange blocks of one size: there is no need to list the pairs.
            self.counts = np.full((1, self.size), table.size)
            self.layouts = [Packed(self.counts, self.size), Packed(self.counts, self.size)]
            return
        first_pair = csr.running_total(component.groups.sizes**2)[self.groups]
        n = self.size
        rows = (first_pair[:, None] + np.arange(n * n)).reshape(-1, n, n)
        first_row = np.arange(len(self.members)) * n
        given = component.given.take(rows.ravel())
        received = component.received.take(rows.transpose(0, 2, 1).ravel())
        self.layouts = [Listed(given, first_row, n), Listed(received, first_row, n)]
        self.counts = given.totals.reshape(-1, n, n)[:, 0, :]

    def collect(self, commutative: bool) -> Collected:
        """Run the algorithm; scratch it declares joins the layouts."""
        only = np.array(self.only or (), dtype=np.int64)
        for motion in () if self.only is None else motions(self.size):
            group = self._group(commutative, motion)
            rounds = self.part.algorithm.steps(group)
            try:
                collected = collect_relative(rounds, motion, only, len(self.groups))
            except UNLIKE:
                continue
            self.layouts += group.scratch
            return collected
        group = self._group(commutative)
        kept = None if self.only is None else np.isin(np.arange(self.size), only)
        collected = collect(self.part.algorithm.steps(group), kept, len(self.groups))
        self.layouts += group.scratch
        return collected

    def _group(self, commutative: bool, motion: Motion | None = None) -> Group:
        return Group(
            size=self.size,
            root=self.root,
            commutative=commutative,
            chunk_counts=self.counts,
            options=self.part.options,
            motion=motion,
        )

    def homes(self, n_scratch: int) -> tuple[Ints, Ints, int]:
        """Return buffer and base of every layout (row) and member, and how many homes are new."""
        component = self.part.component
        which = csr.occurrence(self.ranks)
        n_each = int(which.max(initial=0)) + 1
        buffers, bases = [], []
        for home in (component.input, component.output):
            buffers.append(home.buffer[self.ranks])
            bases.append(home.base[self.ranks])
        n_own = len(self.layouts) - 2
        for number in range(n_own):
            # A rank in several groups has scratch for each.
            buffers.append(np.full(len(self.ranks), Buffer.SCRATCH, dtype=np.int8))
            bases.append((n_scratch + number * n_each + which) * SCRATCH_STRIDE)
        return np.stack(buffers), np.stack(bases), n_own * n_each


def _batches(part: Stated, only_ranks: Sequence[int] | None) -> Iterator[_Batch]:
    """Yield groups of one size and root, and of one set of positions where only some are kept."""
    groups, root = part.component.groups, part.component.root
    if only_ranks is None:
        kinds, inverse = np.unique(
            np.stack((groups.sizes, root), axis=1), axis=0, return_inverse=True
        )
        for number, (size, first) in enumerate(kinds.tolist()):
            yield _Batch(part, np.flatnonzero(inverse.ravel() == number), size, first, None)
        return
    places = np.flatnonzero(np.isin(groups.ranks, only_ranks))
    numbers, firsts = np.unique(
        np.searchsorted(groups.indptr, places, side="right") - 1, return_index=True
    )
    shapes: dict[tuple[int, int, Positions], list[int]] = {}
    for number, inside in zip(numbers.tolist(), np.split(places, firsts[1:]), strict=False):
        positions = tuple((inside - groups.indptr[number]).tolist())
        shapes.setdefault((int(groups.sizes[number]), int(root[number]), positions), []).append(
            number
        )
    for (size, first, positions), chosen in sorted(shapes.items()):
        yield _Batch(part, np.array(chosen), size, first, positions)


def _other_shapes(part: Stated, seen: set[Shape]) -> Iterator[_Batch]:
    """Yield a group of each shape that no kept rank is in; only its rounds are counted."""
    sizes, root = part.component.groups.sizes, part.component.root
    for group, shape in enumerate(zip(sizes.tolist(), root.tolist(), strict=True)):
        if shape not in seen:
            seen.add(shape)
            yield _Batch(part, np.array([group]), *shape, ())


class _Lowering:
    """Tables that grow batch by batch."""

    def __init__(self, n_scratch: int) -> None:
        self.n_scratch = n_scratch
        self.message: dict[str, list[Any]] = {}
        self.local: dict[str, list[Any]] = {}
        self.runs: dict[str, list[Located]] = {name: [] for name in RUNS}
        self.n_messages = 0
        self.n_locals = 0

    def add(self, phase: int, first_round: int, batch: _Batch, collected: Collected) -> None:
        """Add a batch's steps, group after group."""
        n_groups, size = len(batch.groups), batch.size
        buffers, bases, n_new = batch.homes(self.n_scratch)
        self.n_scratch += n_new
        assert self.n_scratch < MAX_SCRATCH, "more scratch spaces than addresses for them"
        message = collected.arrays(collected.message, n_groups)
        local = collected.arrays(collected.local, n_groups)
        n, n_local = collected.n_messages, collected.n_locals
        shift = np.repeat(np.arange(n_groups) * size, n)
        local_shift = np.repeat(np.arange(n_groups) * size, n_local)
        source, dest = message["source"] + shift, message["dest"] + shift
        owner = local["rank"] + local_shift
        ends = dict(zip(RUNS, (source, dest, dest, owner, owner), strict=True))
        for name, runs in collected.runs.items():
            is_local = name.startswith("local")
            tiled = _tiled_runs(runs.arrays(), n_groups, n_local if is_local else n)
            located = locate(batch.layouts, tiled, ends[name])
            located.settle(buffers, bases, batch.ranks)
            located.owner += self.n_locals if is_local else self.n_messages
            self.runs[name].append(located)
        in_order = message["incoming_left"] == IN_ORDER
        message["incoming_left"] = np.where(in_order, source < dest, message["incoming_left"] > 0)
        message |= {"source": batch.ranks[source], "dest": batch.ranks[dest]}
        local["rank"] = batch.ranks[owner]
        for table, rows in ((self.message, message), (self.local, local)):
            rows["round"] = rows["round"] + np.int32(first_round)
            rows["phase"] = np.full(len(rows["round"]), phase, dtype=np.int16)
            for name, column in rows.items():
                table.setdefault(name, []).append(column)
        self.n_messages += n * n_groups
        self.n_locals += n_local * n_groups

    def tables(self, n_ranks: int) -> tuple[MessageTable, LocalTable, Ints]:
        """Return the finished tables, messages by round, and the scratch ranks need."""
        stacked = [Located.stack(parts) for parts in self.runs.values()]
        sizes = squeeze_scratch(stacked, n_ranks)
        located = dict(zip(self.runs, stacked, strict=True))
        message: dict[str, Any] = {n: concatenated(parts) for n, parts in self.message.items()}
        local: dict[str, Any] = {n: concatenated(parts) for n, parts in self.local.items()}
        if not message:
            none, phase = Collected(None), {"phase": np.zeros(0, dtype=np.int16)}
            message, local = none.arrays(none.message) | phase, none.arrays(none.local) | phase
        pieces = {
            name: runs.pieces(self.n_locals if name.startswith("local") else self.n_messages)
            for name, runs in located.items()
        }
        messages = MessageTable(**message | {name: pieces[name] for name in RUNS[:3]})
        steps = LocalTable(**local, read=pieces["local_read"], write=pieces["local_write"])
        if (np.diff(messages.round) < 0).any():
            messages = messages.take(np.argsort(messages.round, kind="stable"))
        messages = messages.select(messages.ordered | (messages.write.elements > 0))
        steps = steps.select((steps.write.elements > 0) & ~_onto_itself(steps))
        return messages, steps, sizes


def _tiled_runs(runs: tuple[Ints, ...], n_groups: int, n_owners: int) -> tuple[Ints, ...]:
    if n_groups == 1:
        return runs
    owner, *rest = (np.tile(column, n_groups) for column in runs)
    owner = owner + np.repeat(np.arange(n_groups) * n_owners, len(runs[0]))
    return owner, *rest


def _onto_itself(steps: LocalTable) -> Bools:
    """Mark copies whose source and destination are one place."""
    lengths = np.diff(steps.read.indptr)
    alike = (lengths == np.diff(steps.write.indptr)) & (steps.op == Op.COPY)
    read, write = steps.read.masked(alike), steps.write.masked(alike)
    differs = np.zeros(len(read.buffer), dtype=bool)
    for one, other in zip(read.columns(), write.columns(), strict=True):
        differs |= one != other
    alike[read.owner[differs]] = False
    return np.asarray(alike)
