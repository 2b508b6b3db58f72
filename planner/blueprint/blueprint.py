"""The high-level graph: component collectives on groups, in program order.

A decomposition states a collective as components. A component is a collective on several groups at
once, or a local copy or reduction. Regions of the collective's vector state which elements a
component moves, and homes state the locations of the elements, so that data are staged only if this
is necessary. Lowering turns components into messages and tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.blueprint.groups import GroupEdges, Groups
from collplan.planner.blueprint.locations import SCRATCH_STRIDE, Binding, Home
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.plan.plan import Buffer
from collplan.specs import Decomposition, PlanSpec
from collplan.specs.collectives.collective import traits_of
from collplan.specs.collectives.collective_base import CollectiveModel

Path = tuple[int, ...]
"""Position of a phase in program order."""

COPY = "copy"
REDUCE = "local_reduce"
LOCAL = (COPY, REDUCE)
"""Kinds of local components, in which every rank is a group by itself: ``output = input`` and
``output = input op output``."""


@dataclass(frozen=True, eq=False)
class Component:
    """One collective on several groups of ranks at once.

    Parameters
    ----------
    kind : str
        Kind of the collective, `COPY` or `REDUCE`.
    role : str
        Name of the part that it plays in the decomposition, such as ``node`` or ``lane``, by
        which specs select algorithms.
    groups : Groups
        Groups of ranks that take part.
    root : ndarray of int64, shape (n_groups,)
        Position of the root in every group, or 0 if the kind has no root.
    input, output : Home
        Locations of contributions and results. They may be equal, as in a call in place.
    given : Regions
        Regions that are moved. There is a row per group if the kind has one vector, a row per
        member if it has blocks, for alltoall a row per pair, sorted by sender, and for
        neighborhoods a row per edge.
    received : Regions or None
        The same rows in the numbering of the output, if it differs from that of the input.
    edges : GroupEdges or None
        Edges along which the members of each group send, if the kind has edges.
    """

    kind: str
    role: str
    groups: Groups
    root: Ints
    input: Home
    output: Home
    given: Regions
    received: Regions | None = None
    edges: GroupEdges | None = None

    @cached_property
    def first_rows(self) -> Ints:
        """First row of every group's regions, and the number of rows."""
        if self.edges is not None:
            return self.edges.indptr
        sizes = self.groups.sizes.astype(np.int64)
        if not self.traits.has_blocks:
            return np.arange(len(sizes) + 1)
        return csr.running_total(sizes**2 if self.traits.is_pairwise else sizes)

    @property
    def is_local(self) -> bool:
        """Return whether the component only copies or reduces locally, without messages."""
        return self.kind in LOCAL

    @property
    def traits(self) -> type[CollectiveModel]:
        """Return the traits of the kind."""
        return traits_of(self.kind)


@dataclass(frozen=True, eq=False)
class GroupTask:
    """A collective on one group, which may still be decomposed. Its fields are as in `Component`.

    `ranks` are in the order of positions, which is the order of operands. In a task of a `LOCAL`
    kind, every rank processes its own row of `given`. In a gather or reduce, positions other than
    the root may use their output as scratch, and in a scatter their input.
    """

    kind: str
    role: str
    ranks: Ints
    root: int
    input: Home
    output: Home
    given: Regions
    received: Regions | None = None
    edges: GroupEdges | None = None

    @property
    def size(self) -> int:
        """Return the number of positions."""
        return len(self.ranks)

    @property
    def is_empty(self) -> bool:
        """Return whether the task has one rank, or no elements although its kind moves some."""
        return self.size < 2 or (self.traits.has_data and not self.given.totals.any())

    @property
    def traits(self) -> type[CollectiveModel]:
        """Return the traits of the kind."""
        return traits_of(self.kind)


@dataclass(frozen=True, eq=False)
class Blueprint:
    """A collective as components, in program order.

    Parameters
    ----------
    components : tuple of Component
    n_scratch : int
        Number of scratch homes that the components use.
    decomposition : Decomposition
        Decomposition from which the blueprint was drafted. Passes on blueprints depend on it.
    binding : Binding
        Homes of the collective's own input and output, and sizes of the caller's buffers.
    spec : PlanSpec
        Spec of the plan.
    exchange : Exchange, optional
        An alltoall through shared memory, which replaces components.
    only_ranks : ndarray of int64, optional
        Ranks for whose programs the blueprint was drafted. None means all ranks.
    slices : tuple of Blueprint
        If the vector is computed in slices, the blueprint of each slice, in the order of
        elements. Slices of the same length share a blueprint.
    """

    components: tuple[Component, ...]
    n_scratch: int
    decomposition: Decomposition
    binding: Binding
    spec: PlanSpec
    exchange: Exchange | None = None
    only_ranks: Ints | None = None
    slices: tuple[Blueprint, ...] = ()


class Sketch:
    """Tasks that a decomposition adds phase by phase, from which components are made.

    Tasks of the same phase run concurrently. A phase is a path of numbers, like the number of a
    section of a book, and program order is the order of paths.

    Parameters
    ----------
    n_ranks : int
        Number of ranks of the machine.
    only : ndarray of int64, optional
        Ranks whose programs are wanted. Groups that resemble others may be omitted if they have
        none of these ranks.
    is_rough : bool
        Whether groups may be omitted in nested decompositions, too, which can change the numbers
        of phases.
    """

    def __init__(self, n_ranks: int, only: Ints | None = None, is_rough: bool = False) -> None:
        self.n_ranks = n_ranks
        self.only = only
        self.is_rough = is_rough
        self.n_scratch = 0
        self._phases: dict[tuple[Path, str, str], list[GroupTask]] = {}
        self._scratch: dict[Path, list[tuple[Home, Bools]]] = {}

    def scratch(self, path: Path, ranks: Ints) -> Home:
        """Return a home in scratch that no other task under `path` uses on `ranks`.

        Disjoint groups under the same path share a home.
        """
        homes = self._scratch.setdefault(path, [])
        for home, is_used in homes:
            if not is_used[ranks].any():
                is_used[ranks] = True
                return home
        base = np.full(self.n_ranks, self.n_scratch * SCRATCH_STRIDE, dtype=np.int64)
        home = Home(np.full(self.n_ranks, Buffer.SCRATCH, dtype=np.int8), base)
        self.n_scratch += 1
        homes.append((home, np.zeros(self.n_ranks, dtype=np.bool_)))
        homes[-1][1][ranks] = True
        return home

    def is_wanted(self, groups: Ints) -> Bools:
        """Mark the groups with a rank whose program is wanted, at least one.

        Parameters
        ----------
        groups : ndarray of int64, shape (n_groups, size)
            Ranks of similar groups.
        """
        if self.only is None:
            return np.ones(len(groups), dtype=np.bool_)
        found: Bools = np.any(np.isin(groups, self.only), axis=1)
        found[:1] |= not found.any()
        return found

    def add(self, path: Path, task: GroupTask) -> Bools:
        """Add a task to a phase, and mark the ranks that have the result in its output.

        Tasks of one rank and tasks without elements are omitted. A gather or scatter in which
        only the root's block has elements becomes a copy.

        Returns
        -------
        ndarray of bool, shape (n_ranks,)
        """
        moved = np.zeros(self.n_ranks, dtype=np.bool_)
        if task.is_empty:
            return moved
        moved[task.ranks] = True
        is_dealt = task.traits.is_rooted and task.traits.has_blocks
        if is_dealt and not np.delete(task.given.totals, task.root).any():
            root = np.array([task.root])
            received = None if task.received is None else task.received.take(root)
            given = task.given.take(root)
            self.copy(path, task.role, task.ranks[root], task.input, task.output, given, received)
            return moved
        before, staged, after = _staged(task, lambda: self.scratch((*path, -1), task.ranks))
        for part, tasks in enumerate((before, [staged], after)):
            for one in tasks:
                self._put((*path, part), one)
        return moved

    def copy(self, path: Path, role: str, ranks: Ints, input: Home, output: Home,
             given: Regions, received: Regions | None = None) -> None:  # fmt: skip
        """Copy row i of `given` on rank i of `ranks`.

        Without `received`, ranks on which both homes are equal copy nothing.
        """
        moves = given.totals > 0
        if received is None:
            moves &= input.differs(output)[ranks]
        rows = np.flatnonzero(moves)
        own = None if received is None else received.take(rows)
        ends = input, output, given.take(rows), own
        self._put_local(path, GroupTask(COPY, role, ranks[rows], 0, *ends))

    def reduce(self, path: Path, role: str, ranks: Ints, input: Home, output: Home,
               given: Regions) -> None:  # fmt: skip
        """Combine row i of `given` on rank i of `ranks`: ``output = input op output``."""
        rows = np.flatnonzero(given.totals > 0)
        self._put_local(
            path, GroupTask(REDUCE, role, ranks[rows], 0, input, output, given.take(rows))
        )

    def components(self) -> tuple[Component, ...]:
        """Return the components, in program order."""
        phases = sorted(self._phases.items(), key=lambda phase: phase[0][0])
        return tuple(c for _, tasks in phases for c in _joined(tasks, self.n_ranks))

    def _put_local(self, path: Path, task: GroupTask) -> None:
        if task.size:
            self._put(path, task)

    def _put(self, path: Path, task: GroupTask) -> None:
        self._phases.setdefault((path, task.kind, task.role), []).append(task)


def _staged(
    task: GroupTask, new_scratch: Callable[[], Home]
) -> tuple[list[GroupTask], GroupTask, list[GroupTask]]:
    """Stage data in place that an algorithm would overwrite while they are still needed.

    A kind that stages its input copies it to scratch first. A kind that stages its output leaves
    the result in scratch if its location is elsewhere in the same buffer as the input.

    Returns
    -------
    before : list of GroupTask
        Copies that run before the task.
    staged : GroupTask
        The task with the input or output in scratch.
    after : list of GroupTask
        Copies that run after the task.
    """
    if task.traits.staged is None:
        return [], task, []
    stages_input = task.traits.staged == "input"
    input, output = task.input.at(task.ranks), task.output.at(task.ranks)
    in_place = (input.buffer == output.buffer) & (input.buffer != Buffer.SCRATCH)
    if not stages_input:
        in_place &= input.base != output.base
    staged = np.flatnonzero(in_place)
    if not len(staged):
        return [], task, []
    home = task.input if stages_input else task.output
    is_staged = np.zeros(len(home.base), dtype=np.bool_)
    is_staged[task.ranks[staged]] = True
    stage = new_scratch().where(is_staged, home)
    ends = (home, stage) if stages_input else (stage, home)
    rows = _rows_of_members(task)
    copies = GroupTask(COPY, task.role, task.ranks[staged], 0, *ends, rows.take(staged))
    if stages_input:
        return [copies], replace(task, input=stage), []
    return [], replace(task, output=stage), [copies]


def simplified(task: GroupTask, new_scratch: Callable[[], Home]) -> GroupTask:
    """Return the simplest collective with the effect of `task`.

    For example, an allgather in which only one block has elements is a bcast. Decompositions
    therefore need no special cases for one leader per node. A reduce_scatter in which only one
    block has elements is a reduce, which may use outputs in callers' buffers as scratch. There it
    gets scratch from `new_scratch` instead.
    """
    least = task.traits.with_one_block
    if least is None or task.size < 2:
        return task
    if task.traits.is_pairwise:
        return _with_one_receiver(task, least)
    holders = np.flatnonzero(task.given.totals)
    if len(holders) != 1 or task.received is not None:
        return task
    root, given = int(holders[0]), task.given.take(holders)
    if task.traits.sends_blocks:
        is_kept = task.output.buffer == Buffer.SCRATCH
        is_kept[task.ranks[root]] = True
        output = task.output
        if not is_kept[task.ranks].all():
            output = output.where(is_kept, new_scratch())
        return replace(task, kind=least, root=root, output=output, given=given)
    if task.input.differs(task.output)[task.ranks[root]]:
        return task
    return replace(task, kind=least, root=root, input=task.output, given=given)


def _with_one_receiver(task: GroupTask, kind: str) -> GroupTask:
    """Return an alltoall with one receiver as `kind`, if the output of all ranks is in scratch.

    Otherwise, return `task`.
    """
    assert task.received is not None
    # Blocks of the same size have as many receivers as ranks.
    is_uniform = isinstance(task.given, PairTable)
    if is_uniform or (task.output.buffer[task.ranks] != Buffer.SCRATCH).any():
        return task
    receivers = np.flatnonzero(task.given.totals.reshape(task.size, task.size).any(axis=0))
    if len(receivers) != 1:
        return task
    rows = np.arange(task.size) * task.size + receivers[0]
    given, received = task.given.take(rows), task.received.take(rows)
    return replace(task, kind=kind, root=int(receivers[0]), given=given, received=received)


def _rows_of_members(task: GroupTask) -> Regions:
    """Return a row per position: all its blocks for others, its own block, or the whole vector."""
    if task.traits.is_pairwise:
        rows = np.arange(task.size**2).reshape(task.size, task.size)
        return task.given.union(list(rows))
    if task.traits.has_blocks:
        return task.given
    return task.given.take(np.zeros(task.size, dtype=np.int64))


@dataclass
class _Bundle:
    """Tasks that can form one component, because every rank has the same homes in all of them."""

    homes: tuple[Home, Home]
    is_set: Bools
    tasks: list[GroupTask]

    def takes(self, task: GroupTask) -> bool:
        """Add `task` and return True, unless one of its ranks already has another home."""
        known = task.ranks[self.is_set[task.ranks]]
        ends = list(zip(self.homes, (task.input, task.output), strict=True))
        if len(known) and any(
            home.at(known).differs(other.at(known)).any() for home, other in ends
        ):
            return False
        for home, other in ends:
            home.buffer[task.ranks] = other.buffer[task.ranks]
            home.base[task.ranks] = other.base[task.ranks]
        self.is_set[task.ranks] = True
        self.tasks.append(task)
        return True


def _joined(tasks: list[GroupTask], n_ranks: int) -> list[Component]:
    """Return the component of tasks that run concurrently, or several if homes conflict."""
    bundles: list[_Bundle] = []
    for task in tasks:
        if not any(bundle.takes(task) for bundle in bundles):
            homes = (task.input.copy(), task.output.copy())
            bundles.append(_Bundle(homes, np.zeros(n_ranks, dtype=np.bool_), []))
            bundles[-1].takes(task)
    return [_component(bundle.tasks, bundle.homes) for bundle in bundles]


def _component(tasks: list[GroupTask], homes: tuple[Home, Home]) -> Component:
    kind, role = tasks[0].kind, tasks[0].role
    groups, root = Groups.of([task.ranks for task in tasks]), np.array([one.root for one in tasks])
    if kind in LOCAL:
        groups, root = Groups.alone(groups.ranks), np.zeros_like(groups.ranks)
    given = Regions.stack([task.given for task in tasks])
    edges = [task.edges for task in tasks if task.edges is not None]
    joined = GroupEdges.stack(edges) if edges else None
    return Component(kind, role, groups, root, *homes, given, _stack_received(tasks), joined)


def _stack_received(tasks: list[GroupTask]) -> Regions | None:
    if all(task.received is None for task in tasks):
        return None
    return Regions.stack([task.received or task.given for task in tasks])
