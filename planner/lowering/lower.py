"""From components to messages and local steps of elements, for all ranks at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np

from collplan.planner.algorithms.chunks import Layout, Listed, Packed
from collplan.planner.algorithms.registry import BLOCKS, Algorithm
from collplan.planner.algorithms.rounds import Group
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.locations import SCRATCH_STRIDE
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.lowering.address import (
    MAX_SCRATCH,
    Homes,
    Located,
    concatenated,
    locate,
    squeeze_scratch,
)
from collplan.planner.lowering.collect import IN_ORDER, Collected, Steps, collect
from collplan.planner.lowering.collect_relative import UNLIKE, collect_relative, motions
from collplan.planner.plan import pieces
from collplan.planner.plan.phases import Phase, Trees
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Op
from collplan.specs import PlanSpec

Positions = tuple[int, ...]
"""Positions of a group, ascending."""


class Table:
    """Columns of rows: arrays, and `Pieces` with a row each."""

    @classmethod
    def stack(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of all tables, one table after another."""
        stacked: dict[str, Any] = {}
        for name in vars(tables[0]):
            parts: list[Any] = [getattr(table, name) for table in tables]
            is_pieces = isinstance(parts[0], Pieces)
            stacked[name] = pieces.stack(parts) if is_pieces else np.concatenate(parts)
        return cls(**stacked)

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

    def n_parts(self, size: int) -> int:
        """Return the chunks that a vector, or each block, is cut into for `size` ranks."""
        return self.algorithm.n_parts(size, self.options)

    @property
    def n_pairs(self) -> int:
        """Return how many messages an algorithm of p² of them goes through, 0 for others."""
        size = int(self.component.groups.sizes.max(initial=0))
        return int(size * (size - 1) * self._per_pair)

    @property
    def least_messages(self) -> int:
        """Return how many messages an algorithm of p² of them sends, 0 for others."""
        return int(self._n_messages.sum() * self._per_pair)

    def least_messages_of(self, ranks: Sequence[int]) -> float:
        """Return the share that some ranks have in `least_messages`."""
        groups = self.component.groups
        per_member = self._n_messages * self._per_pair / groups.sizes
        return float(np.repeat(per_member, groups.sizes)[np.isin(groups.ranks, ranks)].sum())

    @property
    def _n_messages(self) -> Ints:
        """Number of messages of all ordered pairs of ranks per group; empty ones are not sent."""
        given, sizes = self.component.given, self.component.groups.sizes.astype(np.int64)
        all_pairs = sizes * (sizes - 1)
        if not self._per_pair or isinstance(given, PairTable):
            return all_pairs
        if not self.component.traits.has_blocks:
            # A vector shorter than the group has one chunk per element.
            return np.minimum(sizes, int(given.totals.max(initial=0))) * (sizes - 1)
        is_pairwise = self.component.traits.is_pairwise
        ends = csr.running_total(sizes**2 if is_pairwise else sizes)
        n_filled = csr.running_total(given.totals > 0)
        n_blocks = n_filled[ends[1:]] - n_filled[ends[:-1]]
        # A rank's block for itself is no message.
        n_sent = n_blocks - sizes if is_pairwise else n_blocks * (sizes - 1)
        return np.asarray(np.clip(n_sent, 0, all_pairs))

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
    spec: PlanSpec,
    n_scratch: int,
    only_ranks: Sequence[int] | None = None,
) -> Tables:
    """Turn components into tables of messages and local steps.

    Rounds of a component follow those of the components before it. Empty
    messages and steps are dropped, copies onto themselves, too.

    Parameters
    ----------
    parts : sequence of Stated
        In program order; their place is their phase.
    spec : PlanSpec
    n_scratch : int
        Scratch homes the components use.
    only_ranks : sequence of int, optional
        Keep only what concerns these ranks, dropping the rest as it comes.
    """
    lowering, commutative = _Lowering(n_scratch), spec.collective.is_commutative
    first_round, phases = 0, list[Phase]()
    for phase, part in enumerate(parts):
        n_rounds: dict[Shape, int] = {}
        sends: dict[Shape, list[int]] = {}
        for batch in _batches(part, only_ranks):
            collected = batch.collect(commutative)
            if batch.only != ():
                lowering.add(phase, first_round, batch, collected)
            n_rounds[batch.shape], sends[batch.shape] = collected.n_rounds, collected.sends
        stated = part.phase(first_round, sends)
        phases.append(stated if only_ranks is None else stated.of_ranks(only_ranks))
        first_round += max(n_rounds.values(), default=0)
    shared_sizes = np.zeros(spec.machine.nodes, dtype=np.int64)
    return Tables(*lowering.tables(spec.machine.n_ranks), shared_sizes, tuple(phases))


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
        self.pair_counts: Ints | None = None
        if component.traits.is_pairwise:
            self._lay_out_pairs(component)
            return
        n_chunks = parts = self.part.n_parts(self.size)
        rows: Ints = self.groups
        if component.traits.has_blocks:
            parts = parts if self.part.algorithm.parts == BLOCKS else 1
            rows, n_chunks = self.members, self.size * parts
        first_row = np.repeat(np.arange(len(self.groups)) * n_chunks, self.size)
        ends = (component.given, component.received)
        own = [regions.take(rows).cut(parts) for regions in ends if regions is not None]
        if component.traits.has_blocks and parts > 1:
            of_ranks = np.arange(len(rows) * parts).reshape(-1, self.size, parts)
            own = [regions.take(of_ranks.transpose(0, 2, 1).ravel()) for regions in own]
        own = [_compact(regions) for regions in own]
        self.layouts = [Listed(regions, first_row, n_chunks) for regions in (own[0], own[-1])]
        self.counts = own[0].totals.reshape(len(self.groups), n_chunks)

    def _lay_out_pairs(self, component: Component) -> None:
        assert component.received is not None
        table = component.given
        if isinstance(table, PairTable) and isinstance(component.received, PairTable):
            # All ranks exchange blocks of one size: there is no need to list the pairs.
            self.counts = np.full((len(self.groups), self.size), table.size)
            self.layouts = [self._layout_of(end) for end in (table, component.received)]
            return
        first_pair = csr.running_total(component.groups.sizes**2)[self.groups]
        n = self.size
        rows = (first_pair[:, None] + np.arange(n * n)).reshape(-1, n, n)
        first_row = np.arange(len(self.members)) * n
        given = component.given.take(rows.ravel())
        received = component.received.take(rows.transpose(0, 2, 1).ravel())
        self.layouts = [Listed(given, first_row, n), Listed(received, first_row, n)]
        pairs = given.totals.reshape(-1, n, n)
        self.counts = pairs[:, 0, :]
        if (pairs != pairs[:, :1, :1]).any():
            self.pair_counts = pairs

    def _layout_of(self, table: PairTable) -> Layout:
        """Return where the blocks of one size lie, the same for all members."""
        if table.is_plain:
            return Packed(self.counts, self.size)
        rows = np.arange(self.size) * table.divisor
        return Listed(table.take(rows), np.zeros(len(self.members), dtype=np.int64), self.size)

    def collect(self, commutative: bool) -> Collected:
        """Return the algorithm's steps, and add its scratch to the layouts.

        Recent steps are kept: candidates that are compared often differ only in their transport,
        or in the algorithms of other components.
        """
        algorithm, counts, pairs = self.part.algorithm, self.counts, self.pair_counts
        key = (
            *(algorithm.steps, self.shape, commutative, counts.shape, counts.tobytes()),
            *(str(sorted(self.part.options.items())), self.only, len(self.groups)),
            pairs.tobytes() if pairs is not None and algorithm.by_counts else b"",
        )
        found = _recent.get(key)
        if found is None:
            found = self._run(commutative)
            if found[0].n_rows <= KEPT_ROWS:
                _recent[key] = found
            if len(_recent) > MOST_KEPT:
                _recent.pop(next(iter(_recent)), None)
        collected, scratch = found
        self.layouts += scratch
        return collected

    def _run(self, commutative: bool) -> tuple[Collected, Sequence[Layout]]:
        """Return what the algorithm does, and the layouts of its scratch."""
        only = np.array(self.only or (), dtype=np.int64)
        for motion in () if self.only is None else motions(self.size):
            group = self._group(commutative, motion)
            rounds = self.part.algorithm.steps(group)
            try:
                return collect_relative(rounds, motion, only, len(self.groups)), group.scratch
            except UNLIKE:
                continue
        group = self._group(commutative)
        kept = None
        if self.only is not None:
            kept = np.zeros(self.size, dtype=bool)
            kept[only] = True
        rounds = self.part.algorithm.steps(group)
        return collect(rounds, kept, len(self.groups)), group.scratch

    def _group(self, commutative: bool, motion: Motion | None = None) -> Group:
        return Group(
            size=self.size,
            root=self.root,
            commutative=commutative,
            chunk_counts=self.counts,
            options=self.part.options,
            pair_counts=self.pair_counts,
            motion=motion,
        )

    def homes(self, n_scratch: int) -> tuple[Homes, int]:
        """Return where every space lies on every member, and how many of these homes are new."""
        ends = (self.part.component.input, self.part.component.output)
        buffers = [home.buffer[self.ranks] for home in ends]
        bases = [home.base[self.ranks] for home in ends]
        n_own = len(self.layouts) - 2
        # A rank in several groups has scratch for each.
        which = csr.occurrence(self.ranks) if n_own else np.zeros(0, dtype=np.int64)
        n_each = int(which.max(initial=0)) + 1
        for number in range(n_own):
            buffers.append(np.full(len(self.ranks), Buffer.SCRATCH, dtype=np.int8))
            bases.append((n_scratch + number * n_each + which) * SCRATCH_STRIDE)
        return (np.array(buffers), np.array(bases), self.ranks), n_own * n_each


def _compact(regions: Regions) -> Regions:
    """Return the same rows in as few intervals as can be, as every message repeats them."""
    if regions.repeat is not None or len(regions.low) < 2 * len(regions):
        return regions
    return regions.grouped(np.arange(len(regions)), np.ones(len(regions), dtype=np.int64))


MOST_KEPT: Final = 64
"""Number of algorithms' runs whose steps are kept for later programs."""
KEPT_ROWS: Final = 1 << 13
"""Number of messages, local steps and runs of chunks above which they are not kept."""
_recent: dict[tuple[Any, ...], tuple[Collected, Sequence[Layout]]] = {}
"""Steps of algorithms that ran recently, the oldest first."""


def _batches(part: Stated, only_ranks: Sequence[int] | None) -> Iterator[_Batch]:
    """Yield groups of one size and root, and of one set of positions where only some are kept.

    Of a size and root with which no kept rank is in a group, one group comes, with no position.
    """
    groups, root = part.component.groups, part.component.root
    if len(groups) and (groups.sizes == 1).all() and not root.any():
        yield _alone(part, only_ranks)
        return
    inside: dict[int, list[int]] = {}
    if only_ranks is not None:
        places = np.flatnonzero(np.isin(groups.ranks, only_ranks))
        numbers = np.searchsorted(groups.indptr, places, side="right") - 1
        positions = places - groups.indptr[numbers]
        for number, position in zip(numbers.tolist(), positions.tolist(), strict=True):
            inside.setdefault(number, []).append(position)
    alike: dict[tuple[int, int, Positions | None, bytes], list[int]] = {}
    shapes = zip(groups.sizes.tolist(), root.tolist(), _what_decides(part), strict=True)
    for number, (size, first, counts) in enumerate(shapes):
        only = None if only_ranks is None else tuple(inside.get(number, ()))
        alike.setdefault((size, first, only, counts), []).append(number)
    is_kept = {(size, first) for size, first, only, _ in alike if only != ()}
    for (size, first, only, _), chosen in sorted(alike.items()):
        if only != ():
            yield _Batch(part, np.array(chosen), size, first, only)
        elif (size, first) not in is_kept:
            is_kept.add((size, first))
            yield _Batch(part, np.array(chosen[:1]), size, first, only)


def _alone(part: Stated, only_ranks: Sequence[int] | None) -> _Batch:
    """Return the batch of groups of one rank each, as of local steps."""
    ranks = part.component.groups.ranks
    if only_ranks is None:
        return _Batch(part, np.arange(len(ranks)), 1, 0, None)
    chosen = np.flatnonzero(np.isin(ranks, only_ranks))
    return _Batch(part, chosen, 1, 0, (0,)) if len(chosen) else _Batch(part, np.arange(1), 1, 0, ())


def _what_decides(part: Stated) -> Iterator[bytes]:
    """Yield, per group, the counts that its algorithm decides by; the same for all if by none."""
    component, sizes = part.component, part.component.groups.sizes.astype(np.int64)
    if not part.algorithm.by_counts or isinstance(component.given, PairTable):
        yield from [b""] * len(sizes)
        return
    n_rows = np.ones_like(sizes)
    if component.traits.has_blocks:
        n_rows = sizes**2 if component.traits.is_pairwise else sizes
    totals, ends = component.given.totals, csr.running_total(n_rows)
    for low, high in pairwise(ends.tolist()):
        yield totals[low:high].tobytes()


class _Table:
    """Columns and runs of messages, or of local steps, that grow batch by batch."""

    def __init__(self, nothing: Steps) -> None:
        self._nothing = nothing
        self._columns: dict[str, list[Any]] = {}
        self._runs: dict[str, list[Located]] = {name: [] for name in nothing.runs}
        self._n = 0

    def add(self, columns: dict[str, Any], located: Located, starts: list[int]) -> None:
        """Add rows, and their runs; those of each kind begin where `starts` says."""
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)
        for parts, low, high in zip(self._runs.values(), starts[:-1], starts[1:], strict=True):
            parts.append(located.part(low, high, self._n))
        self._n += len(columns["phase"])

    def runs(self) -> list[Located]:
        """Return all runs, a table for each kind."""
        return [Located.stack(parts) for parts in self._runs.values()]

    def columns(self, runs: list[Located]) -> dict[str, Any]:
        """Return all columns; what rows read and write are the runs, wherever they lie by now."""
        columns = {name: concatenated(parts) for name, parts in self._columns.items()}
        if not columns:
            columns = self._nothing.arrays() | {"phase": np.zeros(0, dtype=np.int16)}
        accesses = (each.pieces(self._n) for each in runs)
        return columns | dict(zip(self._runs, accesses, strict=True))


class _Lowering:
    """Tables that grow batch by batch."""

    def __init__(self, n_scratch: int) -> None:
        self.n_scratch = n_scratch
        self.messages, self.locals = map(_Table, Collected().tables)

    def add(self, phase: int, first_round: int, batch: _Batch, collected: Collected) -> None:
        """Add a batch's steps, group after group."""
        n_groups = len(batch.groups)
        homes, n_new = batch.homes(self.n_scratch)
        self.n_scratch += n_new
        assert self.n_scratch < MAX_SCRATCH, "more scratch spaces than addresses for them"
        for table, steps in zip((self.messages, self.locals), collected.tables, strict=True):
            if not steps.n:
                continue
            rows = steps.arrays(n_groups)
            shift = np.repeat(np.arange(n_groups) * batch.size, steps.n)
            members = [rows[end] + shift for end in steps.ends]
            # A message reads at its source, and does all else at its destination.
            at = [members[0 if name == "read" else -1] for name in steps.runs]
            runs, starts = _tiled_runs(steps, n_groups)
            located = locate(batch.layouts, homes, runs, np.concatenate(at))
            if steps is collected.messages:
                left, (source, dest) = rows["incoming_left"], members
                rows["incoming_left"] = np.where(left == IN_ORDER, source < dest, left > 0)
            for end, member in zip(steps.ends, members, strict=True):
                rows[end] = batch.ranks[member]
            rows["round"] = rows["round"] + np.int32(first_round)
            rows["phase"] = np.full(len(shift), phase, dtype=np.int16)
            table.add(rows, located, starts)

    def tables(self, n_ranks: int) -> tuple[MessageTable, LocalTable, Ints]:
        """Return the finished tables, messages by round, and the scratch ranks need."""
        runs = self.messages.runs()
        n_kinds = len(runs)
        runs += self.locals.runs()
        sizes = squeeze_scratch(runs, n_ranks)
        messages = MessageTable(**self.messages.columns(runs[:n_kinds]))
        steps = LocalTable(**self.locals.columns(runs[n_kinds:]))
        if (np.diff(messages.round) < 0).any():
            messages = messages.take(np.argsort(messages.round, kind="stable"))
        messages = messages.select(messages.ordered | (messages.write.elements > 0))
        steps = steps.select((steps.write.elements > 0) & ~_onto_itself(steps))
        return messages, steps, sizes


def _tiled_runs(steps: Steps, n_groups: int) -> tuple[Ints, list[int]]:
    """Return the runs of all groups' steps, those of each kind of runs behind the kind before.

    Owners are numbered in the same way; where those of each kind begin is returned, too.
    """
    kinds = steps.runs.values()
    lengths = np.repeat([runs.n for runs in kinds], n_groups)
    array = np.concatenate([runs.array() for runs in kinds], axis=1)
    starts = np.arange(len(kinds) * n_groups + 1) * steps.n
    if n_groups > 1:
        first = csr.running_total([runs.n for runs in kinds])[:-1]
        array = array[:, csr.ranges(np.repeat(first, n_groups), lengths)]
    array[0] += np.repeat(starts[:-1], lengths)
    return array, starts[::n_groups].tolist()


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
