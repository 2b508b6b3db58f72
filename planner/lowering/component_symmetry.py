"""The symmetry of a component: whether a motion by whole nodes maps it onto itself.

Groups that are mapped onto other groups do the same there, with any algorithm. In a group that is
mapped onto itself, positions are moved. Its algorithm must then state its rounds relative to
positions, and all chunks must have the same size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from collplan.planner.algorithms.registry import BLOCKS, Algorithm
from collplan.planner.algorithms.rounds import OUTPUT, Group
from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.errors import AsymmetricError
from collplan.planner.lowering.collect import Runs
from collplan.planner.lowering.collect_relative import motions, relative_steps
from collplan.planner.lowering.stated import Stated
from collplan.specs import PlanSpec


class ComponentSymmetry:
    """Checks of one component under one motion.

    Parameters
    ----------
    part : Stated
    motion : Motion
        Of all ranks, by whole nodes.
    spec : PlanSpec
    name : str
        Name of the component in messages.
    """

    def __init__(self, part: Stated, motion: Motion, spec: PlanSpec, name: str) -> None:
        self.part = part
        self.collective = spec.collective
        self.may_wrap = spec.machine.network.strided_ns_per_byte == 0
        self.by: Ints = np.zeros(0, dtype=np.int64)
        """Number by which the first checked motion moves the positions of each group."""
        self.moved = 0
        """Greatest common divisor of the numbers by which positions move."""
        self.component: Component = part.component
        self.motion = motion
        self.name = name
        groups = self.component.groups
        self.group = csr.row_numbers(groups.indptr)
        self.position = np.arange(len(groups.ranks)) - groups.indptr[self.group]

    def check(self, blocks: Sequence[int]) -> None:
        """Raise where motions to some blocks do not map the component onto itself."""
        for block in blocks:
            members, image = self._image(block)
            by = self._moved_by(members, image)
            self.by = by if block == blocks[0] else self.by
            self.moved = math.gcd(self.moved, *np.unique(by).tolist())
            self._check_homes(members, image)
            for regions in (self.component.given, self.component.received):
                if regions is not None:
                    self._check_regions(regions, members, image)
        if self.moved:
            self._check_moving()

    def check_first_groups(self) -> None:
        """Raise if a motion maps a group of the first node onto some of its ranks and others.

        Raise also if a group is mapped onto itself and its ranks differ. Set the number by which
        positions move.
        """
        groups, motion = self.component.groups, self.motion
        is_first = np.zeros(len(groups), dtype=np.bool_)
        is_first[self.group[groups.ranks < motion.step]] = True
        members = np.flatnonzero(is_first[self.group])
        node, place = np.divmod(groups.ranks[members], motion.step)
        number = (np.cumsum(is_first) - 1)[self.group[members]]
        key = number * motion.step + place
        n_nodes = np.bincount(key, minlength=int(is_first.sum()) * motion.step)
        is_whole = np.isin(n_nodes, (0, motion.n_blocks)).reshape(-1, motion.step).all(axis=1)
        leaves = np.bincount(number, node > 0) == 0
        if (is_whole | leaves).all():
            # Every motion maps a group with the same ranks of all nodes onto itself, and one with
            # ranks of a single node onto another group.
            by = [
                int(np.argmax(own == image))
                for own in map(groups.__getitem__, np.flatnonzero(is_first)[is_whole].tolist())
                for image in motion.move(own[0], np.array(motion.generators))
            ]
            self.moved = math.gcd(self.moved, *by)
        else:
            self._check_members(members)
        if self.moved:
            self._check_moving()

    def _check_members(self, members: Ints) -> None:
        """Raise if a motion maps a group of these members onto some of its ranks and others."""
        groups, n_ranks = self.component.groups, self.motion.size
        group, ranks = self.group[members], groups.ranks[members]
        key = csr.joint_key(group, ranks, n_ranks)
        order = np.argsort(key)
        for block in self.motion.generators:
            image = csr.joint_key(group, self.motion.move(ranks, block), n_ranks)
            place = order[np.searchsorted(key, image, sorter=order) % len(order)]
            stays = key[place] == image
            n_staying = np.bincount(group[stays], minlength=len(groups))
            if not ((n_staying == 0) | (n_staying == groups.sizes)).all():
                raise self.refusal("its groups differ from node to node")
            by = self.position[members[place]][stays & (self.position[members] == 0)]
            self.moved = math.gcd(self.moved, *by.tolist())

    def check_blocks(self) -> None:
        """Raise if a component of another kind moves the blocks of the collective."""
        kind = self.collective.planned_kind
        if self.collective.has_blocks and self.moved and self.component.kind != kind:
            raise self.refusal(f"it moves blocks of {kind} in another order")

    @property
    def cuts_blocks(self) -> bool:
        """Return whether groups that do not move divide blocks, perhaps of several nodes."""
        sizes = self.component.groups.sizes
        is_cut = self.component.traits.has_blocks and self.part.algorithm.parts == BLOCKS
        return is_cut and not self.moved and self.part.n_parts(int(sizes.max(initial=1))) > 1

    def moving_spans(self) -> list[tuple[int, int]]:
        """Return the first element and the end of vectors that groups divide into moving chunks."""
        groups, given, spans = self.component.groups, self.component.given, []
        for group in np.flatnonzero(self.by).tolist():
            rows = np.array([group])
            if self.component.traits.has_blocks:
                rows = np.arange(groups.indptr[group], groups.indptr[group + 1])
            elif self.part.n_parts(int(groups.sizes[group])) == 1:
                continue
            if self.component.traits.is_pairwise:
                continue
            own = given.take(rows).grouped(np.arange(len(rows)), np.ones(len(rows), dtype=np.int64))
            if own.is_packed:
                spans.append((int(own.low[0]), int(own.low[-1] + own.count[-1])))
        return spans

    def fixed_edges(self, block: int) -> Ints:
        """Return the places at which groups divide vectors, if those of two nodes agree."""
        nothing = np.zeros(0, dtype=np.int64)
        if self.moved or self.component.traits.is_pairwise:
            return nothing
        node = self.component.groups.ranks // self.motion.step
        one, other = (self._edges(np.unique(self.group[node == number])) for number in (0, block))
        return one if np.array_equal(one, other) else nothing

    def _edges(self, groups: Ints) -> Ints:
        """Return the places at which blocks or chunks of some groups begin and end."""
        component = self.component
        if component.traits.has_blocks:
            given = component.given.take(np.flatnonzero(np.isin(self.group, groups)))
        else:
            whole = component.given.take(groups)
            whole = whole.grouped(np.arange(len(groups)), np.ones(len(groups), dtype=np.int64))
            if whole.repeat is not None:
                return np.zeros(0, dtype=np.int64)
            size = int(component.groups.sizes[groups].max(initial=1))
            given = whole.cut(self.part.n_parts(size))
        return np.concatenate((given.low, given.low + given.count))

    def _image(self, block: int) -> tuple[Ints, Ints]:
        """Return members and their images, which are the same occurrence of the other rank.

        Only groups that are mapped onto groups are included. Groups of other nodes than the first
        may be missing in blueprints for some ranks.
        """
        groups = self.component.groups
        ranks = groups.ranks
        turn = csr.occurrence(ranks)
        n_turns = int(turn.max(initial=0)) + 1
        place = np.full(self.motion.size * n_turns, -1, dtype=np.int64)
        place[ranks * n_turns + turn] = np.arange(len(ranks))
        image: Ints = place[self.motion.move(ranks, block) * n_turns + turn]
        is_first = np.zeros(len(groups), dtype=np.bool_)
        is_first[self.group[ranks < self.motion.step]] = True
        is_mapped = np.bincount(self.group[image < 0], minlength=len(groups)) == 0
        if not is_mapped[is_first].all() or not is_first.any():
            raise self.refusal("other ranks take part on other nodes")
        members = np.flatnonzero(is_mapped[self.group])
        return members, image[members]

    def _moved_by(self, members: Ints, image: Ints) -> Ints:
        """Return the number by which positions of each group move; 0 for missing groups."""
        groups, root = self.component.groups, self.component.root
        group, other = self.group[members], self.group[image]
        of_group, by = np.zeros((2, len(groups)), dtype=np.int64)
        of_group[group] = other
        if (other != of_group[group]).any() or (groups.sizes[other] != groups.sizes[group]).any():
            raise self.refusal("its groups differ from node to node")
        position = self.position[members]
        if self.motion.kind == "shift":
            moved = (self.position[image] - position) % groups.sizes[group]
        else:
            moved = self.position[image] ^ position
        by[group] = moved
        if (moved != by[group]).any():
            raise self.refusal("the order of ranks in its groups is another on other nodes")
        if by.any() and self.component.traits.is_rooted:
            raise self.refusal("its root is on one node")
        if (root[other] != root[group]).any():
            raise self.refusal("its roots are other ranks on other nodes")
        return by

    def _check_homes(self, members: Ints, image: Ints) -> None:
        ranks = self.component.groups.ranks
        for home in (self.component.input, self.component.output):
            if (home.buffer[ranks[image]] != home.buffer[ranks[members]]).any():
                raise self.refusal("data lie in other buffers on other nodes")

    def _check_regions(self, regions: Regions, members: Ints, image: Ints) -> None:
        """Raise if moved regions differ in size or in their number of pieces."""
        if isinstance(regions, PairTable):
            return
        totals, pieces = regions.totals, np.diff(regions.indptr)
        rows, mapped = self._rows_of(members), self._rows_of(image)
        if (totals[mapped] != totals[rows]).any() or (pieces[mapped] != pieces[rows]).any():
            raise self.refusal("blocks or chunks are of other sizes on other nodes")

    def _rows_of(self, members: Ints) -> Ints:
        """Return the rows of the members' regions, sorted by group.

        For pairs, the members of a group are consecutive, in the order of pairs.
        """
        groups, traits = self.component.groups, self.component.traits
        group = self.group[members]
        if traits.is_pairwise:
            first_pair = csr.running_total(groups.sizes**2)[:-1]
            sizes = groups.sizes[group]
            source, turn = csr.expand(sizes)
            # Members of a group are listed one after another, from its first one on.
            first = np.flatnonzero(csr.run_starts(group))
            begin = np.repeat(first, np.diff(np.append(first, len(group))))
            dest = members[begin[source] + turn]
            place = self.position[members[source]] * sizes[source]
            return np.asarray(first_pair[group[source]] + place + self.position[dest])
        return members if traits.has_blocks else group

    def _check_moving(self) -> None:
        """Raise if positions move, and the algorithm or its chunks differ between positions."""
        component, algorithm = self.component, self.part.algorithm
        self._check_chunks()
        for size in np.unique(component.groups.sizes).tolist():
            if not any(self._is_relative(motion) for motion in self._finest(size)):
                raise self.refusal(f"the rounds of {algorithm.name} differ between ranks")

    def _check_chunks(self) -> None:
        """Raise if vectors cannot be divided into equal chunks."""
        if self.component.traits.has_blocks:
            return
        totals, pieces = self.component.given.totals, np.diff(self.component.given.indptr)
        for size in np.unique(self.component.groups.sizes).tolist():
            n_parts = self.part.n_parts(size)
            if n_parts == 1:
                continue
            if (totals % n_parts).any():
                raise self.refusal(
                    f"{int(totals.max())} elements are not divided by {n_parts} ranks"
                )
            if (pieces > 1).any():
                raise self.refusal("its vector lies in several pieces")

    @property
    def is_whole(self) -> bool:
        """Return whether messages carry whole vectors."""
        size = int(self.component.groups.sizes[0])
        return not self.component.traits.has_blocks and self.part.n_parts(size) == 1

    def turns(self) -> set[tuple[int, int, int]]:
        """Return the intervals of the vector whose chunks or blocks move."""
        groups, given, found = self.component.groups, self.component.given, set()
        has_blocks = self.component.traits.has_blocks
        for group in np.flatnonzero(self.by).tolist():
            rows = slice(group, group + 1)
            size = int(groups.sizes[group])
            n_parts = self.part.n_parts(size)
            if has_blocks:
                rows = slice(int(groups.indptr[group]), int(groups.indptr[group + 1]))
                n_parts = size
            own = given.take(np.arange(rows.start, rows.stop))
            count = int(own.totals.sum())
            if n_parts == 1 or not count:
                continue
            if not own.is_packed or (own.totals != own.totals[0]).any():
                raise self.refusal("its blocks do not lie one after another")
            # Each run of as many chunks as there are positions turns by itself.
            first, chunk = int(own.low[0]), count // n_parts
            turn = chunk * min(n_parts, size)
            step = chunk * int(self.by[group])
            found |= {(low, turn, step) for low in range(first, first + count, turn)}
        return found

    def _finest(self, size: int) -> list[Motion]:
        """Return the motions of a group's positions whose rounds may be alike."""
        return [
            one
            for one in motions(size)
            if one.kind == self.motion.kind and self.moved % one.step == 0
        ]

    def _is_relative(self, motion: Motion) -> bool:
        """Return whether the rounds are the same at all positions, except for the chunks."""
        algorithm, options = self.part.algorithm, tuple(sorted(self.part.options.items()))
        if algorithm.is_packed:
            return False  # They depend on the places of ranks.
        n_chunks = motion.size
        if not self.component.traits.has_blocks:
            n_chunks = self.part.n_parts(motion.size)
        return _rounds_are_alike(
            algorithm, options, motion, n_chunks, self.collective.may_reorder, self.may_wrap
        )

    def refusal(self, why: str) -> AsymmetricError:
        """Return an error that names the component and the difference between nodes."""
        return AsymmetricError(f"fold: {self.name} ({self.component.kind}): {why}")


@lru_cache(maxsize=256)
def _rounds_are_alike(
    algorithm: Algorithm,
    options: tuple[tuple[str, Any], ...],
    motion: Motion,
    n_chunks: int,
    is_commutative: bool,
    may_wrap: bool,
) -> bool:
    """Return whether an algorithm can state its rounds relative to positions."""
    group = Group(
        size=motion.size,
        root=0,
        commutative=is_commutative,
        chunk_counts=np.ones((1, n_chunks), dtype=np.int64),
        options=dict(options),
        motion=motion,
        by_counts=algorithm.by_counts,
    )
    made = relative_steps(algorithm, group)
    return made is not None and all(
        _are_alike(runs, motion, n_chunks, may_wrap=may_wrap)
        for steps in made[0].tables
        for runs in steps.runs.values()
    )


def _are_alike(runs: Runs, motion: Motion, n_chunks: int, *, may_wrap: bool) -> bool:
    """Return whether runs of chunks are the same at every position.

    A run that is shifted may wrap around the end of its space at some positions, if strided access
    costs nothing and there is one chunk per position. An exclusive or keeps aligned runs together.
    A run that does not move must be a whole vector, or lie in scratch.
    """
    columns = runs.columns
    space, first, n, stride, repeat = (columns[name].spread() for name in Runs.FIELDS[1:])
    if any(column.is_relative.any() for column in (space, n, stride, repeat)):
        return False
    moves = first.is_relative
    begin = first.values + first.offset
    is_together = (motion.step % np.maximum(n.values, 1) == 0) & (
        begin % np.maximum(n.values, 1) == 0
    )
    if motion.kind == "shift" and may_wrap and n_chunks == motion.size:
        is_together |= n.values <= n_chunks
    is_whole = (begin == 0) & (n.values == n_chunks)
    stays = (space.values > OUTPUT) | is_whole | (n.values == 0)
    return bool(np.where(moves, is_together & (repeat.values == 1), stays).all())
