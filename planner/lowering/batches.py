"""Batches of groups of the same size and root, for which an algorithm runs once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from collplan.planner.algorithms.chunks import Layout, Listed, Packed, Scratch
from collplan.planner.algorithms.registry import BLOCKS
from collplan.planner.algorithms.rounds import Group
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.groups import GroupEdges
from collplan.planner.blueprint.locations import SCRATCH_STRIDE
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.lowering.address import (
    Homes,
)
from collplan.planner.lowering.collect import Collected, collect
from collplan.planner.lowering.collect_relative import motions, place_steps, relative_steps
from collplan.planner.lowering.recent_steps import MOST_ROWS, Made, RecentSteps
from collplan.planner.lowering.stated import Shape, Stated
from collplan.planner.packing.schedule import GroupSchedule
from collplan.planner.plan.plan import Buffer

Positions = tuple[int, ...]
"""Positions in a group, ascending."""

_recent: Final = RecentSteps()
"""Steps of the positions whose steps are kept."""


@dataclass
class Batch:
    """Groups of the same size and root, for which an algorithm runs once.

    Member ``g * size + i`` is position i of group g of the batch. `members` contains the indices
    of the members in the component.

    Parameters
    ----------
    part : Stated
    groups : ndarray of int64, shape (n_groups,)
        Numbers of the groups in the component.
    size, root : int
        Size of every group, and the position of its root.
    only : tuple of int, optional
        Positions whose steps are kept; all positions if None.
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
        self.edges: tuple[Ints, Ints] | None = None
        if component.edges is not None:
            self._lay_out_edges(component, component.edges)
            return
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

    def _lay_out_edges(self, component: Component, edges: GroupEdges) -> None:
        assert component.received is not None
        self.edges = edges.of_group(int(self.groups[0]))
        n = len(self.edges[0])
        rows = (edges.indptr[self.groups][:, None] + np.arange(n)).ravel()
        first_row = np.repeat(np.arange(len(self.groups)) * n, self.size)
        own = [_compact(ends.take(rows)) for ends in (component.given, component.received)]
        self.layouts = [Listed(regions, first_row, n) for regions in own]
        self.counts = own[0].totals.reshape(len(self.groups), n)

    def _lay_out_pairs(self, component: Component) -> None:
        assert component.received is not None
        table = component.given
        if isinstance(table, PairTable) and isinstance(component.received, PairTable):
            # All blocks have the same size, so the pairs need not be listed.
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
        """Return the layout of blocks of the same size, which is the same for all members."""
        if table.is_plain:
            return Packed(self.counts, self.size)
        rows = np.arange(self.size) * table.divisor
        return Listed(table.take(rows), np.zeros(len(self.members), dtype=np.int64), self.size)

    def collect(self, commutative: bool) -> Collected:
        """Return the algorithm's steps, and add its scratch to the layouts.

        Recent steps are cached, as candidates that are compared often differ only in their count,
        their transport, or the algorithms of other components. Steps depend on counts only if the
        algorithm decides by counts. Otherwise, only the sizes of its scratch depend on them.

        Parameters
        ----------
        commutative : bool
            Whether operands may be exchanged.
        """
        algorithm, counts, pairs = self.part.algorithm, self.counts, self.pair_counts
        by_counts = algorithm.by_counts or pairs is not None
        key = (
            *(algorithm.steps, self.shape, commutative, counts.shape, self.only, len(self.groups)),
            str(sorted(self.part.options.items())),
            str(self.schedule),
            *((one.tobytes() for one in (counts, pairs) if one is not None) if by_counts else ()),
            *(one.tobytes() for one in self.edges or ()),
        )
        made = _recent.find(key, None if by_counts else counts, lambda: self._run(commutative))
        assert made is not None
        self.layouts += made[1]
        return made[0]

    def _run(self, commutative: bool) -> Made:
        """Return the steps of the algorithm, and the layouts of its scratch."""
        algorithm, scratch = self.part.algorithm, list[Scratch]()
        collected = None
        only = np.array(self.only or (), dtype=np.int64)
        is_relative = self.only is not None and self.edges is None
        for motion in motions(self.size) if is_relative else ():
            made = relative_steps(algorithm, self._group(commutative, motion))
            if made is not None:
                collected, scratch = place_steps(made[0], motion, only), list(made[1])
                break
        if collected is None:
            kept = None
            if self.only is not None:
                kept = np.zeros(self.size, dtype=bool)
                kept[only] = True
            group = self._group(commutative, kept=kept)
            collected = collect(algorithm.steps(group), kept, len(self.groups))
            scratch = group.scratch
        if collected.n_rows <= MOST_ROWS:
            for steps in collected.tables:
                steps.settle()
        return collected, scratch

    def _group(
        self, commutative: bool, motion: Motion | None = None, kept: Bools | None = None
    ) -> Group:
        return Group(
            size=self.size,
            root=self.root,
            commutative=commutative,
            chunk_counts=self.counts,
            options=self.part.options,
            pair_counts=self.pair_counts,
            edges=self.edges,
            motion=motion,
            kept=kept,
            by_counts=self.part.algorithm.by_counts,
            schedule=self.schedule,
        )

    @property
    def schedule(self) -> GroupSchedule | None:
        """Return the schedule of the groups, if the algorithm is packed."""
        packing = self.part.packing
        return None if packing is None else packing.groups[int(self.groups[0])]

    def homes(self, n_scratch: int) -> tuple[Homes, int]:
        """Return the location of every space on every member, and the number of new scratch spaces.

        Parameters
        ----------
        n_scratch : int
            Number of scratch spaces in use.
        """
        ends = (self.part.component.input, self.part.component.output)
        buffers = [home.buffer[self.ranks] for home in ends]
        bases = [home.base[self.ranks] for home in ends]
        n_own = len(self.layouts) - 2
        # A rank in several groups has separate scratch for each of them.
        which = csr.occurrence(self.ranks) if n_own else np.zeros(0, dtype=np.int64)
        n_each = int(which.max(initial=0)) + 1
        for number in range(n_own):
            buffers.append(np.full(len(self.ranks), Buffer.SCRATCH, dtype=np.int8))
            bases.append((n_scratch + number * n_each + which) * SCRATCH_STRIDE)
        return (np.array(buffers), np.array(bases), self.ranks), n_own * n_each


def _compact(regions: Regions) -> Regions:
    """Return the same rows in the fewest intervals, as every message repeats them."""
    if regions.repeat is not None or len(regions.low) < 2 * len(regions):
        return regions
    return regions.grouped(np.arange(len(regions)), np.ones(len(regions), dtype=np.int64))


def batches(part: Stated, only_ranks: Ints | None) -> Iterator[Batch]:
    """Yield batches of groups with the same size, root and kept positions.

    Groups of an algorithm that decides by counts also have the same counts. For a size and root of
    which no group has a kept rank, yield one group without kept positions.

    Parameters
    ----------
    part : Stated
    only_ranks : ndarray of int64, optional
        Ranks whose steps are kept; all ranks if None.
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
    alike: dict[tuple[int, int, bytes], list[int]] = {}
    shapes = zip(groups.sizes.tolist(), root.tolist(), _what_decides(part), strict=True)
    for number, shape in enumerate(shapes):
        alike.setdefault(shape, []).append(number)
    is_made = set()
    for (size, first, _), chosen in sorted(alike.items()):
        if only_ranks is None:
            yield Batch(part, np.array(chosen), size, first, None)
            continue
        # The groups of a rank keep their order, in which the plan of all ranks has its rows.
        kept = [number for number in chosen if number in inside]
        for only, of_only in groupby(kept, key=lambda number: tuple(inside[number])):
            yield Batch(part, np.array(list(of_only)), size, first, only)
        if kept:
            is_made.add((size, first))
    if only_ranks is not None:
        for (size, first, _), chosen in sorted(alike.items()):
            if (size, first) not in is_made:
                is_made.add((size, first))
                yield Batch(part, np.array(chosen[:1]), size, first, ())


def _alone(part: Stated, only_ranks: Ints | None) -> Batch:
    """Return the batch of groups of one rank each, such as those of local steps."""
    ranks = part.component.groups.ranks
    if only_ranks is None:
        return Batch(part, np.arange(len(ranks)), 1, 0, None)
    chosen = np.flatnonzero(np.isin(ranks, only_ranks))
    return Batch(part, chosen, 1, 0, (0,)) if len(chosen) else Batch(part, np.arange(1), 1, 0, ())


def _what_decides(part: Stated) -> Iterator[bytes]:
    """Yield for every group the counts by which its algorithm decides, or empty bytes.

    The bytes are in the order of the counts, also if all counts are multiplied by a number. Groups
    of a packed algorithm also have the same schedule, and those with edges the same edges.
    """
    if part.packing is not None:
        yield from _with_schedules(part)
        return
    edges = part.component.edges
    if edges is not None:
        counts = _counts_that_decide(part)
        ends = (np.stack(edges.of_group(group)) for group in range(len(part.component.groups)))
        yield from (one + each.tobytes() for one, each in zip(counts, ends, strict=True))
        return
    yield from _counts_that_decide(part)


def _with_schedules(part: Stated) -> Iterator[bytes]:
    """Yield for every group its counts, if they decide, and what its schedule is."""
    assert part.packing is not None
    for counts, schedule in zip(_counts_that_decide(part), part.packing.groups, strict=True):
        yield counts + schedule.digest.encode()


def _counts_that_decide(part: Stated) -> Iterator[bytes]:
    """Yield the counts of every group, or empty bytes if they do not decide."""
    component = part.component
    if not part.algorithm.by_counts or isinstance(component.given, PairTable):
        yield from [b""] * len(component.groups)
        return
    totals = component.given.totals.astype(">i8")
    for low, high in pairwise(component.first_rows.tolist()):
        yield totals[low:high].tobytes()
