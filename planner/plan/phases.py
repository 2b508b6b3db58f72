"""The phases of a plan: the component collectives that its tasks belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from collplan.planner.arrays import Ints

UP: Final = 1
"""Direction of a transfer towards the root of its tree."""
DOWN: Final = -1
"""Direction of a transfer away from the root of its tree."""
TO_ROOT: Final = ("reduce", "gather", "allreduce", "scan", "exscan")
FROM_ROOT: Final = ("bcast", "scatter", "allreduce", "scan", "exscan")
"""Collectives whose trees lead to a root, and those whose trees lead from one."""
NATIVE: Final = "native"
"""The algorithm of phases in which the MPI library's own collectives are called."""
LOCAL: Final = "local"
"""The algorithm of phases without messages."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of the same shape on several groups.

    Parameters
    ----------
    groups : tuple of tuple of int
        The ranks of every tree.
    up, down : tuple of int
        Rounds of the plan in which messages go towards the roots, and away from them, ascending.
        Each round is one level.
    """

    groups: tuple[tuple[int, ...], ...]
    up: tuple[int, ...]
    down: tuple[int, ...]

    @classmethod
    def of(
        cls,
        kind: str,
        groups: tuple[tuple[int, ...], ...],
        sends: Sequence[int],
        n_up: int | None = None,
    ) -> Trees:
        """Return the trees of a collective, given the rounds that send messages.

        Of trees that go up and then down, `n_up` rounds go up; half of them if `n_up` is None.
        """
        if n_up is None:
            n_up = len(sends) // (1 + (kind in FROM_ROOT)) if kind in TO_ROOT else 0
        return cls(groups, tuple(sends[:n_up]), tuple(sends[n_up:]))

    @property
    def size(self) -> int:
        """Return the number of ranks of each tree."""
        return len(self.groups[0])


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A group of ranks that call a collective of the MPI library together.

    Parameters
    ----------
    members : tuple of int
        The ranks, in the order of their positions.
    """

    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """A component collective of a plan, computed by one algorithm on groups of ranks.

    Imported schedules have phases of which at most the kind is known.

    Parameters
    ----------
    kind : str
        The collective, or the name of local steps.
    algorithm : str
        The algorithm's name.
    role : str
        The role of its groups, such as ``node`` or ``lane``.
    tree : str
        The shape of its trees, such as ``binomial``; empty if it has none.
    trees : tuple of Trees
        Its trees, one entry per shape.
    calls : tuple of GroupCall
        The groups that call the MPI library's own collective. A rank may be in several. Those that
        it is in are numbered from 0 for each rank; see `call_tags`.
    radix : int
        The radix of its trees, 2 if they are binomial; 0 if they are not k-nomial.
    step : str
        The name of the step of a program; empty in the plan of one collective.
    """

    kind: str = ""
    algorithm: str = ""
    role: str = ""
    tree: str = ""
    trees: tuple[Trees, ...] = ()
    calls: tuple[GroupCall, ...] = ()
    radix: int = 0
    step: str = ""

    @classmethod
    def parse(cls, name: str) -> Phase:
        """Return the phase with a name, without its trees."""
        role, _, collective = name.rpartition(" ")
        kind, _, algorithm = collective.partition("/")
        return cls(kind, algorithm, role)

    @property
    def name(self) -> str:
        """Return the name of the phase, such as ``node allgather/ring``."""
        name = f"{self.kind}/{self.algorithm}" if self.algorithm else self.kind
        name = f"{self.role} {name}" if self.role else name
        return f"{self.step}: {name}" if self.step else name

    def __str__(self) -> str:
        return self.name

    @property
    def is_local(self) -> bool:
        """Return whether the phase has no messages."""
        return self.algorithm == LOCAL

    @property
    def is_native(self) -> bool:
        """Return whether ranks call the MPI library's own collective."""
        return self.algorithm == NATIVE

    @property
    def call_tags(self) -> list[tuple[int, ...]]:
        """For each call, the tags of its members' tasks: the number of earlier calls of the member.

        Groups without a rank do not change its tags. They are the same in the rank's own program.
        """
        n_earlier: Counter[int] = Counter()
        found = []
        for call in self.calls:
            found.append(tuple(n_earlier[rank] for rank in call.members))
            n_earlier.update(call.members)
        return found

    def call_of(self, rank: int, tag: int) -> GroupCall:
        """Return the call that a rank makes by the task with a tag."""
        return [call for call in self.calls if rank in call.members][tag]

    def leads(self, direction: int) -> bool:
        """Return whether the phase has trees that lead to a root (`UP`) or from one (`DOWN`)."""
        return bool(self.trees) and self.kind in (TO_ROOT if direction == UP else FROM_ROOT)

    def of_ranks(self, ranks: Iterable[int]) -> Phase:
        """Return the phase with only the groups that contain some of the given ranks."""
        kept, trees = set(ranks), []
        for one in self.trees:
            groups = tuple(group for group in one.groups if not kept.isdisjoint(group))
            if groups:
                trees.append(replace(one, groups=groups))
        calls = tuple(call for call in self.calls if not kept.isdisjoint(call.members))
        return replace(self, trees=tuple(trees), calls=calls)

    def levels(self, rank: Ints, rounds: Ints) -> tuple[Ints, Ints]:
        """Return the levels and directions of tasks in the trees.

        Levels count from the leaves, from 1, one per round that has messages::

            reduce, 6 ranks                        bcast
            0   1   2   3   4   5
            0 <---- 2       4       level 2        0 ----> 4
            0 <- 1  2 <- 3  4 <- 5  level 1        ...

        Parameters
        ----------
        rank, rounds : ndarray of int64, shape (n_tasks,)
            The rank and round of every task.

        Returns
        -------
        level, direction : ndarray of int64, shape (n_tasks,)
            Level 0 is before the level of the leaves in a tree to the root, or after it in a tree
            from the root. The direction is `UP` or `DOWN`.
        """
        level, direction = np.zeros((2, len(rank)), dtype=np.int64)
        # A rank that is in several trees belongs to the largest one.
        for trees in sorted(self.trees, key=lambda trees: trees.size):
            rows = np.flatnonzero(np.isin(rank, [one for group in trees.groups for one in group]))
            up, down = (np.array(way, dtype=np.int64) for way in (trees.up, trees.down))
            own = rounds[rows]
            is_up = np.full(len(rows), self.kind in TO_ROOT)
            if self.kind in FROM_ROOT:
                is_up &= own < down.min(initial=np.iinfo(np.int64).max)
            from_top = len(down) - np.searchsorted(down, own)
            level[rows] = np.where(is_up, np.searchsorted(up, own, side="right"), from_top)
            direction[rows] = np.where(is_up, UP, DOWN)
        return level, direction


def is_inside(name: str, role: str) -> bool:
    """Return whether a role equals another role or is part of it, as ``node.row`` of ``node``."""
    return name == role or name.startswith(f"{role}.")
