"""The high-level graph: component collectives on groups, in program order.

A decomposition states a collective as components, each a collective on many
groups at once, or a local copy or reduction. Components say what they move as
regions of the collective's vector and where it lies as homes, so nothing is
staged that need not be; messages and tasks come only when they are lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.blueprint.groups import Groups
from collplan.planner.blueprint.locations import SCRATCH_STRIDE, Binding, Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.plan.plan import Buffer
from collplan.specs import Decomposition, PlanSpec
from collplan.specs.collective import traits_of
from collplan.specs.collective_base import CollectiveModel

Path = tuple[int, ...]
"""Place of a phase in program order."""

COPY = "copy"
REDUCE = "local_reduce"
LOCAL = (COPY, REDUCE)
"""Kinds of which every rank is a group by itself."""
"""Kinds of local components: on groups of one rank, ``output = input`` and
``output = input op output``."""


@dataclass(frozen=True, eq=False)
class Component:
    """One collective on groups of ranks, all at once.

    Parameters
    ----------
    kind : str
        A collective's kind, `COPY` or `REDUCE`.
    role : str
        Where it runs, as ``node`` or ``lane``: what specs choose algorithms by.
    groups : Groups
        Who takes part.
    root : ndarray of int64, shape (n_groups,)
        The root's position in every group; 0 where the kind has none.
    input, output : Home
        Where contributions lie and results belong. They may be one place, as
        for a call in place.
    given : Regions
        The moved regions: a row per group if the kind cuts one vector, a row per
        member for blocks, and for alltoall a row per pair, sender major.
    received : Regions or None
        The same rows in the output's numbering, where that is another.
    """

    kind: str
    role: str
    groups: Groups
    root: Ints
    input: Home
    output: Home
    given: Regions
    received: Regions | None = None

    @property
    def is_local(self) -> bool:
        """Return whether nothing is sent."""
        return self.kind in LOCAL

    @property
    def traits(self) -> type[CollectiveModel]:
        """Return the traits of the kind."""
        return traits_of(self.kind)


@dataclass(frozen=True, eq=False)
class Task:
    """A collective on one group that may still be decomposed; fields as of `Component`.

    `ranks` are in the order of positions, which is the order of operands. In a task of a `LOCAL`
    kind every rank works for itself, on a row of `given`. In a
    gather or reduce, positions but the root may use their output as they like,
    in a scatter their input. `spare` is where a reduce_scatter may do so.
    """

    kind: str
    role: str
    ranks: Ints
    root: int
    input: Home
    output: Home
    given: Regions
    received: Regions | None = None
    spare: Home | None = None

    @property
    def size(self) -> int:
        """Return the number of positions."""
        return len(self.ranks)

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
        Scratch homes the components use.
    decomposition : Decomposition
        What made it: passes of this level rewrite by it.
    binding : Binding
        The collective's own homes and the sizes of the caller's buffers.
    spec : PlanSpec
        What is to be computed.
    exchange : Exchange, optional
        Instead of components: an alltoall through shared memory.
    only_ranks : ndarray of int64, optional
        The ranks for whose programs it was drafted; None for all.
    slices : tuple of Blueprint
        If the vector is computed in slices, the collective of each, in the order of elements.
        Slices of one length share a blueprint.
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
    """Components as they are written down, phase by phase, for a machine of `n_ranks`.

    Tasks added under one phase run side by side. A phase is a path of numbers,
    as of chapters: program order is the order of paths. Where `only` is given, groups
    that are like others may be left out if none of these ranks is in them; with
    `is_rough` also in nested decompositions, where that can change the numbers of phases.
    """

    def __init__(self, n_ranks: int, only: Ints | None = None, is_rough: bool = False) -> None:
        self.n_ranks = n_ranks
        self.only = only
        self.is_rough = is_rough
        self.n_scratch = 0
        self._phases: dict[tuple[Path, str, str], list[Task]] = {}
        self._scratch: dict[Path, list[tuple[Home, Bools]]] = {}

    def scratch(self, path: Path, ranks: Ints) -> Home:
        """Return a home in scratch that nothing else under `path` uses on `ranks`.

        Groups side by side share one.
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

    def add(self, path: Path, task: Task) -> Bools:
        """Add a task to a phase; return which ranks then have the result in its output.

        Tasks of one rank, or of no elements, are left out, and a gather of the
        root's own block is a copy.
        """
        moved = np.zeros(self.n_ranks, dtype=np.bool_)
        if task.size < 2 or (task.traits.has_data and not task.given.totals.any()):
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
        """Copy row i of `given` on rank i of `ranks`, where the two homes differ."""
        moves = given.totals > 0
        if received is None:
            moves &= input.differs(output)[ranks]
        rows = np.flatnonzero(moves)
        own = None if received is None else received.take(rows)
        ends = input, output, given.take(rows), own
        self._put_local(path, Task(COPY, role, ranks[rows], 0, *ends))

    def reduce(self, path: Path, role: str, ranks: Ints, input: Home, output: Home,
               given: Regions) -> None:  # fmt: skip
        """Combine row i of `given` on rank i of `ranks`: ``output = input op output``."""
        rows = np.flatnonzero(given.totals > 0)
        self._put_local(path, Task(REDUCE, role, ranks[rows], 0, input, output, given.take(rows)))

    def components(self) -> tuple[Component, ...]:
        """Return the components, in program order."""
        phases = sorted(self._phases.items(), key=lambda phase: phase[0][0])
        return tuple(c for _, tasks in phases for c in _joined(tasks, self.n_ranks))

    def _put_local(self, path: Path, task: Task) -> None:
        if task.size:
            self._put(path, task)

    def _put(self, path: Path, task: Task) -> None:
        self._phases.setdefault((path, task.kind, task.role), []).append(task)


def _staged(task: Task, new_scratch: Callable[[], Home]) -> tuple[list[Task], Task, list[Task]]:
    """Stage what an algorithm would overwrite in place while it is needed.

    Returns copies to make before, the task as it then is, and copies after.
    Some kinds need a copy of their input; one whose result belongs elsewhere
    in the vector it reads must leave it in scratch.
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
    copies = Task(COPY, task.role, task.ranks[staged], 0, *ends, rows.take(staged))
    if stages_input:
        return [copies], replace(task, input=stage), []
    return [], replace(task, output=stage), [copies]


def simplified(task: Task) -> Task:
    """Return the least collective that does what `task` does: an allgather of one block is a bcast.

    So decompositions need no cases for one leader per node.
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
        output = task.output
        if task.spare is not None:
            output = output.where(np.arange(len(output.base)) == task.ranks[root], task.spare)
        return replace(task, kind=least, root=root, output=output, given=given)
    if task.input.differs(task.output)[task.ranks[root]]:
        return task
    return replace(task, kind=least, root=root, input=task.output, given=given)


def _with_one_receiver(task: Task, kind: str) -> Task:
    """State an exchange with one receiver as `kind`, if what others receive is scratch."""
    assert task.received is not None
    receivers = np.flatnonzero(task.given.totals.reshape(task.size, task.size).any(axis=0))
    if len(receivers) != 1 or (task.output.buffer[task.ranks] != Buffer.SCRATCH).any():
        return task
    rows = np.arange(task.size) * task.size + receivers[0]
    given, received = task.given.take(rows), task.received.take(rows)
    return replace(task, kind=kind, root=int(receivers[0]), given=given, received=received)


def _rows_of_members(task: Task) -> Regions:
    """Return a row per position: all of what it gives, or of what is its own."""
    if task.traits.is_pairwise:
        rows = np.arange(task.size**2).reshape(task.size, task.size)
        return task.given.union(list(rows))
    if task.traits.has_blocks:
        return task.given
    return task.given.take(np.zeros(task.size, dtype=np.int64))


@dataclass
class _Bundle:
    """Tasks that can be one component: a rank in several has one home in all."""

    homes: tuple[Home, Home]
    is_set: Bools
    tasks: list[Task]

    def takes(self, task: Task) -> bool:
        """Add `task` unless one of its ranks is known with another home."""
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


def _joined(tasks: list[Task], n_ranks: int) -> list[Component]:
    """Return the component of tasks that run side by side; several where homes conflict."""
    bundles: list[_Bundle] = []
    for task in tasks:
        if not any(bundle.takes(task) for bundle in bundles):
            homes = (task.input.copy(), task.output.copy())
            bundles.append(_Bundle(homes, np.zeros(n_ranks, dtype=np.bool_), []))
            bundles[-1].takes(task)
    return [_component(bundle.tasks, bundle.homes) for bundle in bundles]


def _component(tasks: list[Task], homes: tuple[Home, Home]) -> Component:
    kind, role = tasks[0].kind, tasks[0].role
    groups, root = Groups.of([task.ranks for task in tasks]), np.array([one.root for one in tasks])
    if kind in LOCAL:
        groups, root = Groups.alone(groups.ranks), np.zeros_like(groups.ranks)
    given = Regions.stack([task.given for task in tasks])
    return Component(kind, role, groups, root, *homes, given, _stack_received(tasks))


def _stack_received(tasks: list[Task]) -> Regions | None:
    if all(task.received is None for task in tasks):
        return None
    return Regions.stack([task.received or task.given for task in tasks])
