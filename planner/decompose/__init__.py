"""Decompositions: from a collective on all ranks to components on groups of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.blueprint.blueprint import Blueprint, GroupTask, Path, Sketch, simplified
from collplan.planner.blueprint.exchange import FORMS as EXCHANGES
from collplan.planner.blueprint.exchange import count_leaders, exchange_of
from collplan.planner.blueprint.groups import Rows, blocks_of, rows_by, runs_of
from collplan.planner.blueprint.locations import bind_collective
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose import (
    balanced_pairs,
    gathered,
    guideline,
    in_rank_tree,
    leaders,
    mesh,
    neighbors,
    pairs,
    transpose,
)
from collplan.planner.decompose.aligned import require_aligned
from collplan.planner.decompose.balanced import BalancedGrid, BalancedParts
from collplan.planner.decompose.grid import Grid
from collplan.planner.decompose.leaders import Parts
from collplan.planner.errors import AlgorithmError
from collplan.planner.topology.levels import rank_places
from collplan.specs import Decomposition, Machine, PlanSpec
from collplan.specs.collectives.collective import traits_of
from collplan.specs.collectives.collective_base import Reproducible
from collplan.specs.errors import show_value
from collplan.specs.machines.levels import NETWORK_LEVELS, noun_of

FLAT = Decomposition(name="flat")
_SECOND_FORMS = {"transpose": transpose.FORMS, "gather": gathered.FORMS}
"""Second ways to run collectives through leaders, by the name of the form."""


def draft(
    spec: PlanSpec,
    decomposition: Decomposition | None = None,
    *,
    only_ranks: Ints | None = None,
    is_rough: bool = False,
) -> Blueprint:
    """Return the blueprint of a spec's collective: its components.

    Parameters
    ----------
    spec : PlanSpec
    decomposition : Decomposition, optional
        Decomposition in place of the spec's own.
    only_ranks : ndarray of int64, optional
        Ranks whose programs are wanted. If all nodes are alike, groups on the nodes of other
        ranks may be left out.
    is_rough : bool
        Whether groups are left out of nested decompositions, too. Phases may then have other
        numbers than in the plan of all ranks, which is sufficient for estimates.

    Raises
    ------
    AlgorithmError
        If the collective, its operation or the order of ranks does not allow
        the decomposition.
    """
    chosen = decomposition or spec.decomposition
    if chosen.name == "auto":
        raise AlgorithmError(
            "decomposition: auto is not planned as it is; compile with collplan.compile, which "
            "chooses one, or name the decomposition"
        )
    kind, machine = spec.collective.planned_kind, spec.machine
    sketch = Sketch(machine.n_ranks, _only(spec, only_ranks), is_rough)
    everyone = np.arange(machine.n_ranks)
    scratch = sketch.scratch((-1,), everyone)
    binding = bind_collective(spec.collective, machine.n_ranks, scratch)
    exchange = exchange_of(spec, chosen) if machine.n_ranks > 1 else None
    if exchange is not None:
        return Blueprint((), sketch.n_scratch, chosen, binding, spec, exchange, only_ranks)
    root = spec.collective.root or 0
    ends = binding.input, binding.output, binding.given, binding.received, binding.edges
    task = GroupTask(kind, "", everyone, root, *ends)
    if chosen.name != "flat" and kind not in guideline.FORMS:
        raise AlgorithmError(f"decomposition: {kind} has no parts to split by {chosen}; use flat")
    if machine.n_ranks == 1:
        if spec.collective.result_count(0, 1) is not None:
            # The result exists already. It may have to be copied to its place.
            received = task.received if task.input.differs(task.output).any() else None
            sketch.copy((0,), "", task.ranks, task.input, task.output, *_whole(task, received))
    elif chosen.name == "flat":
        sketch.add((0,), task)
    else:
        may_reorder, level = spec.collective.may_reorder, spec.collective.level
        _Expansion(sketch, machine, may_reorder, level).expand((0,), task, chosen)
    return Blueprint(sketch.components(), sketch.n_scratch, chosen, binding, spec, None, only_ranks)


def _whole(task: GroupTask, received: Regions | None) -> tuple[Regions, Regions | None]:
    """Return what a single rank copies to itself: a row, with the blocks of all edges if any."""
    if task.edges is None:
        return task.given, received
    rows = [np.arange(len(task.given))]
    return task.given.union(rows), None if received is None else received.union(rows)


def _only(spec: PlanSpec, ranks: Ints | None) -> Ints | None:
    """Return the ranks whose groups suffice, or None if other ranks' groups may differ."""
    machine, collective = spec.machine, spec.collective
    if ranks is None or len(set(machine.node_to_n_ranks)) > 1:
        return None
    return ranks if collective.regular is None else None


def second_forms(kind: str, level: Reproducible | None = None) -> tuple[str, ...]:
    """Return the forms of a collective through leaders, without its first form.

    At the level "placements", reductions also have a form by alltoalls.

    Examples
    --------
    >>> second_forms("reduce"), second_forms("bcast")
    (('gather',), ())
    """
    found = [form for form, kinds in _SECOND_FORMS.items() if kind in kinds]
    if level == "placements" and traits_of(kind).has_op:
        found.append(in_rank_tree.FORM)
    return tuple(found)


def _leader_form(kind: str, form: str | None, *, is_balanced: bool) -> Callable[[Parts], None]:
    """Return the function that states a collective through leaders."""
    is_pairwise = traits_of(kind).is_pairwise
    if form is None and traits_of(kind).has_edges:
        return neighbors.exchange
    if is_pairwise and form in (None, "collect"):
        return balanced_pairs.alltoall if is_balanced else pairs.alltoall
    if form is None:
        return leaders.FORMS[kind]
    others = second_forms(kind)
    if form in others:
        return _SECOND_FORMS[form][kind]
    there = f"use {' or '.join(others)}, or leave it out" if others else "none: leave it out"
    if is_pairwise:
        there = f"use collect, {' or '.join(EXCHANGES)}"
    raise AlgorithmError(
        f"decomposition.form: {kind} has no form {show_value(form)} through leaders; {there}"
    )


@dataclass(frozen=True)
class _Expansion:
    """Expansion of tasks into components, including nested decompositions."""

    sketch: Sketch
    machine: Machine
    is_commutative: bool
    level: Reproducible | None

    def expand(self, path: Path, task: GroupTask, chosen: Decomposition | None) -> Bools:
        """State `task` by its decomposition; return the ranks with the result in their output."""
        task = simplified(task, lambda: self.sketch.scratch((*path, -1), task.ranks))
        if chosen is None or chosen.name == "flat" or task.is_empty:
            return self.sketch.add(path, task)
        is_renumbered = task.received is not None and task.traits.is_rooted
        if is_renumbered and chosen.name != "guideline":
            return self._expand_renumbered(path, task, chosen)
        if chosen.form == in_rank_tree.FORM and task.traits.has_op and chosen.name != "guideline":
            self._expand_in_rank_tree(path, task, chosen)
        elif chosen.name == "guideline":
            require_aligned(task, chosen, None, self.level)
            role = f"{task.role}.world" if task.role else "world"
            guideline.find_form(task.kind, chosen.form)(self.sketch, path, replace(task, role=role))
        elif chosen.name == "mesh":
            self._expand_mesh(path, task, chosen)
        else:
            self._expand_leaders(path, task, chosen)
        moved = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        moved[task.ranks] = True
        return moved

    def _expand_in_rank_tree(self, path: Path, task: GroupTask, chosen: Decomposition) -> None:
        """State a reduction by alltoalls that go through leaders themselves."""
        moving = chosen.replace(form=None)

        def expand(at: Path, part: GroupTask) -> Bools:
            return self.expand(at, part, moving)

        in_rank_tree.reduce_in_rank_tree(self.sketch, path, task, expand)

    def _expand_renumbered(self, path: Path, task: GroupTask, chosen: Decomposition) -> Bools:
        """State a gather or scatter in one numbering, although its output has another one.

        Data at leaders between the parts of the collective have only one numbering. Copies
        translate between both.
        """
        ends = (task.role, task.ranks, task.input, task.output, task.given, task.received)
        if task.traits.receiver == "root":
            assert task.received is not None
            self.sketch.copy((*path, 0), *ends)
            task = replace(task, input=task.output, given=task.received, received=None)
            return self.expand((*path, 1), task, chosen)
        moved = self.expand((*path, 0), replace(task, output=task.input, received=None), chosen)
        self.sketch.copy((*path, 1), *ends)
        return moved

    def _expand_leaders(self, path: Path, task: GroupTask, chosen: Decomposition) -> None:
        rows = self._rows(task, chosen)
        require_aligned(task, chosen, rows, self.level)
        n_leaders = count_leaders(chosen, rows)
        if chosen.by in NETWORK_LEVELS and n_leaders < (chosen.leaders or 0):
            raise AlgorithmError(
                f"decomposition.leaders: {chosen.leaders} leaders, no {chosen.by} has more than "
                f"{n_leaders} of the ranks; use 1 to {n_leaders}"
            )
        grid = Grid(rows, n_leaders, task.root)
        if chosen.shares == "balanced" and len(rows) > 1:
            lane = np.array(self.machine.rank_to_lane)[task.ranks]
            grid = BalancedGrid(rows, n_leaders, task.root, lane, self.machine.lane_rates)
        parts = self._parts(path, task, grid, ("node", "lane"), chosen.node, chosen.lane)
        _leader_form(task.kind, chosen.form, is_balanced=isinstance(grid, BalancedGrid))(parts)

    def _expand_mesh(self, path: Path, task: GroupTask, chosen: Decomposition) -> None:
        shape, inner = chosen.shape, None
        if shape is None:
            rows = self._rows(task, chosen)
            length = len(rows[0])
            if any(len(row) != length for row in rows):
                lengths = sorted({len(row) for row in rows})
                raise AlgorithmError(
                    f"decomposition.by: a mesh has rows of one length, and a {noun_of(chosen.by)} "
                    f"has {lengths[0]} to {lengths[-1]} of the ranks; use another decomposition"
                )
        else:
            length = int(np.prod(shape[1:]))
            if length * shape[0] != task.size:
                raise AlgorithmError(
                    f"decomposition.shape: {' x '.join(map(str, shape))} does not fit a group of "
                    f"{task.size} ranks; use extents whose product is {task.size}"
                )
            rows = blocks_of(task.size, length)
            inner = Decomposition(name="mesh", shape=shape[1:]) if len(shape) > 2 else None
        require_aligned(task, chosen, rows, self.level)
        n_columns = 1 if task.kind in mesh.ONE_LEADER else length
        grid = Grid(rows, n_columns, task.root)
        mesh.FORMS[task.kind](self._parts(path, task, grid, ("row", "column"), inner, None))

    def _parts(
        self,
        path: Path,
        task: GroupTask,
        grid: Grid,
        roles: tuple[str, str],
        inner: Decomposition | None,
        outer: Decomposition | None,
    ) -> Parts:
        prefix = f"{task.role}." if task.role else ""
        form = BalancedParts if isinstance(grid, BalancedGrid) else Parts
        return form(
            sketch=self.sketch,
            task=task,
            grid=grid,
            path=path,
            inner=lambda at, part: self.expand(at, part, inner),
            outer=lambda at, part: self.expand(at, part, outer),
            roles=(prefix + roles[0], prefix + roles[1]),
            is_commutative=self.is_commutative,
            is_nested=not self.sketch.is_rough and (len(path) > 1 or inner is not None),
        )

    def _rows(self, task: GroupTask, chosen: Decomposition) -> Rows:
        """Return the rows: all ranks of a node, or runs of consecutive ranks if order matters."""
        place = rank_places(self.machine, chosen.by)[task.ranks]
        keeps_order = task.traits.has_op and not self.is_commutative
        if not task.traits.is_prefix and not keeps_order:
            return rows_by(place)
        runs = runs_of(place)
        if len(runs) == task.size and len(np.unique(place)) < task.size:
            order = "in the rank tree" if self.level == "placements" else "of a non-commutative op"
            what = task.kind if self.is_commutative else f"{task.kind} {order}"
            raise AlgorithmError(
                f"decomposition: {chosen.name} {what} combines runs of consecutive ranks on a "
                f"{noun_of(chosen.by)}, and this rank order has none; use flat, a mesh or auto"
            )
        return runs
