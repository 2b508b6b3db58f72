"""Which of a plan's phases are trees, and in which of a tree's levels each task is.

Levels count from the leaves, from 1, one a round that has messages::

    reduce, 6 ranks                        bcast
    0   1   2   3   4   5
    0 <---- 2       4       level 2        0 ----> 4
    0 <- 1  2 <- 3  4 <- 5  level 1        ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.algorithms import registry
from collplan.planner.arrays import Bools, Ints
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.lower import Stated, collect_shapes
from collplan.planner.lowering.select import state
from collplan.planner.passes.blueprint_level import run_blueprint_passes
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec

UP: Final = 1
"""Direction of a transfer towards the root of its tree."""
DOWN: Final = -1
"""Direction of a transfer away from it."""
TO_ROOT: Final = ("reduce", "gather", "allreduce")
FROM_ROOT: Final = ("bcast", "scatter", "allreduce")


@dataclass(frozen=True, eq=False)
class Shape:
    """The rounds of a tree on groups of one size and root.

    Parameters
    ----------
    level, direction : ndarray of int64, shape (n_rounds,)
        The level of every round, 0 for one that lies before the leaves' of a
        tree to the root, or after those of one from it; and `UP` or `DOWN`.
    """

    level: Ints
    direction: Ints


@dataclass(frozen=True, eq=False)
class Phase:
    """A component of a plan, with its place in the plan's rounds.

    Parameters
    ----------
    part : Stated
    first_round : int
    group : ndarray of int64, shape (n_ranks,)
        The group every rank is in, of several the greatest; -1 for none.
    shapes : dict
        By size and root; empty where the component is no tree.
    """

    part: Stated
    first_round: int
    group: Ints
    shapes: dict[tuple[int, int], Shape]

    @property
    def is_local(self) -> bool:
        """Return whether nothing is sent."""
        return self.part.component.is_local

    def leads(self, kinds: Sequence[str]) -> bool:
        """Return whether it is a tree that computes one of some collectives."""
        return bool(self.shapes) and self.part.component.kind in kinds

    def place(self, rank: Ints, rounds: Ints) -> tuple[Ints, Ints]:
        """Return level and direction of tasks of a tree, given their ranks and rounds."""
        groups = self.part.component.groups
        shapes = list(self.shapes)
        number = {shape: i for i, shape in enumerate(shapes)}
        root = self.part.component.root
        of_group = np.array(
            [number[int(n), int(r)] for n, r in zip(groups.sizes, root, strict=True)]
        )
        width = max(len(shape.level) for shape in self.shapes.values())
        # A tree that is lower than others of its phase has nothing in their last rounds.
        table = np.zeros((2, len(shapes), width), dtype=np.int64)
        for i, shape in enumerate(self.shapes.values()):
            table[0, i, : len(shape.level)] = shape.level
            table[1, i, : len(shape.level)] = shape.direction
        mine = of_group[self.group[rank]]
        level, direction = table[:, mine, rounds - self.first_round]
        return level, direction


def phases_of(plan: Plan, name: str) -> list[Phase]:
    """Return the phases of a plan, for pass `name`.

    They are what the plan's spec is decomposed into: rounds in which nothing
    had to be sent have left no tasks, but count.

    Raises
    ------
    AlgorithmError
        If messages are sent, but in no phase along a tree.
    """
    assert plan.spec is not None
    parts = _parts(plan.spec)
    is_made_of_them = tuple(part.label for part in parts) == plan.phases
    phases = list(_phases(parts, plan.n_ranks, plan.spec.collective.is_commutative))
    sending = [phase for phase in phases if not phase.is_local]
    if not is_made_of_them or (sending and not any(phase.shapes for phase in sending)):
        labels = ", ".join(dict.fromkeys(plan.phases))
        raise AlgorithmError(
            f"passes.{name}: {labels} is no tree; it splits {_trees()}; use one of them, or "
            "place_progress"
        )
    return phases


def leaf_phases(phases: Sequence[Phase], direction: int) -> Bools:
    """Mark the phases whose leaves run inside start (`UP`) or inside wait (`DOWN`).

    They are the first that send, or the last: trees side by side, all of one
    role, and the local phases before or after them.
    """
    is_leaf = np.zeros(len(phases), dtype=bool)
    numbers = range(len(phases)) if direction == UP else range(len(phases) - 1, -1, -1)
    kinds, others = (TO_ROOT, FROM_ROOT) if direction == UP else (FROM_ROOT, TO_ROOT)
    role = None
    for number in numbers:
        phase = phases[number]
        component = phase.part.component
        if not phase.is_local:
            if not phase.leads(kinds) or role not in (None, component.role):
                break
            role = component.role
        elif role is not None:
            break
        is_leaf[number] = True
        if phase.leads(others):
            break
    return is_leaf if role is not None else np.zeros(len(phases), dtype=bool)


def _parts(spec: PlanSpec) -> list[Stated]:
    blueprint, _ = run_blueprint_passes(draft(spec), spec.passes)
    return state(blueprint)


def _phases(parts: Sequence[Stated], n_ranks: int, commutative: bool) -> Iterator[Phase]:
    first_round = 0
    for part in parts:
        component = part.component
        is_tree = part.algorithm.tree is not None
        n_rounds, shapes = 0, {}
        for shape, collected in collect_shapes(part, commutative, keeps_steps=is_tree):
            n_rounds = max(n_rounds, collected.n_rounds)
            if is_tree:
                sends = np.unique(collected.message["round"].array())
                shapes[shape] = _shape(component.kind, sends, collected.n_rounds)
        group = np.full(n_ranks, -1, dtype=np.int64)
        owner = np.repeat(np.arange(len(component.groups)), component.groups.sizes)
        by_size = np.argsort(component.groups.sizes[owner], kind="stable")
        group[component.groups.ranks[by_size]] = owner[by_size]
        yield Phase(part, first_round, group, shapes)
        first_round += n_rounds


def _shape(kind: str, sends: Ints, n_rounds: int) -> Shape:
    """Return levels and directions, given the rounds in which messages are sent."""
    leads_up, leads_down = kind in TO_ROOT, kind in FROM_ROOT
    n_up = len(sends) // (1 + leads_down) if leads_up else 0
    up, down = sends[:n_up], sends[n_up:]
    rounds = np.arange(n_rounds)
    is_up = np.full(n_rounds, leads_up)
    if leads_up and leads_down:
        is_up = rounds < down.min(initial=n_rounds)
    level = np.where(
        is_up,
        np.searchsorted(up, rounds, side="right"),
        len(down) - np.searchsorted(down, rounds),
    )
    return Shape(level, np.where(is_up, UP, DOWN))


def _trees() -> str:
    """Return what can be split, in words."""
    return ", ".join(
        f"{kind} ({', '.join(tree.name for tree in registry.of(kind) if tree.tree)})"
        for kind in registry.kinds()
        if any(tree.tree for tree in registry.of(kind))
    )
