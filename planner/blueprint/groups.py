"""Groups of ranks, and how a group falls into rows: nodes, NUMA domains, runs, meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Ints, csr


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of ranks in CSR: position i of group g is rank ``ranks[indptr[g] + i]``.

    Sizes may differ, and a rank may be in several groups.
    """

    indptr: Ints
    ranks: Ints

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(cls, groups: Sequence[Ints]) -> Groups:
        """Return the groups of a list."""
        ranks = np.concatenate([np.zeros(0, dtype=np.int64), *groups])
        return cls(csr.running_total([len(group) for group in groups]), ranks)

    @classmethod
    def alone(cls, ranks: Ints) -> Groups:
        """Return a group of one rank for every entry."""
        return cls(np.arange(len(ranks) + 1), ranks)

    @cached_property
    def sizes(self) -> Ints:
        """Ranks of every group."""
        return np.diff(self.indptr)

    def __getitem__(self, group: int) -> Ints:
        return self.ranks[self.indptr[group] : self.indptr[group + 1]]


Rows = list[Ints]
"""A group's positions, falling into rows; every position is in one."""


def rows_by(place: Ints) -> Rows:
    """Return positions of one place together, places in order of their first position.

    Examples
    --------
    >>> [row.tolist() for row in rows_by(np.array([3, 1, 3, 1]))]
    [[0, 2], [1, 3]]
    """
    values, first, inverse = np.unique(place, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    by_value = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [by_value[value] for value in order] if len(values) else []


def runs_of(place: Ints) -> Rows:
    """Return the maximal runs of consecutive positions of one place.

    Examples
    --------
    >>> [row.tolist() for row in runs_of(np.array([3, 3, 1, 3]))]
    [[0, 1], [2], [3]]
    """
    cuts = np.flatnonzero(place[1:] != place[:-1]) + 1
    return np.split(np.arange(len(place)), cuts) if len(place) else []


def blocks_of(n_positions: int, length: int) -> Rows:
    """Return rows of `length` consecutive positions: a mesh's last dimension."""
    return list(np.arange(n_positions).reshape(-1, length))
