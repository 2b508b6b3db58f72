"""Groups of ranks, and the division of a group into rows: nodes, NUMA domains, runs or meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from collplan.planner.arrays import Ints, csr


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of ranks in CSR form: position i of group g is rank ``ranks[indptr[g] + i]``.

    Groups may differ in size, and a rank may belong to several groups.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_groups + 1,)
    ranks : ndarray of int64, shape (indptr[-1],)
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
        """Return one group per entry of `ranks`, which has only this rank."""
        return cls(np.arange(len(ranks) + 1), ranks)

    @cached_property
    def sizes(self) -> Ints:
        """Number of ranks of every group."""
        return np.diff(self.indptr)

    def __getitem__(self, group: int) -> Ints:
        return self.ranks[self.indptr[group] : self.indptr[group + 1]]


@dataclass(frozen=True, eq=False)
class GroupEdges:
    """Edges between positions of groups in CSR form: row i of regions belongs to edge i.

    The edges of a group differ from each other, and are sorted by source, then by destination.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_groups + 1,)
        Group g has edges ``indptr[g]`` to ``indptr[g + 1] - 1``.
    source, dest : ndarray of int64, shape (n_edges,)
        Positions from which and to which each edge leads.
    """

    indptr: Ints
    source: Ints
    dest: Ints

    @classmethod
    def stack(cls, parts: Sequence[GroupEdges]) -> GroupEdges:
        """Return the groups of all parts, one part after another."""
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        ends = (np.concatenate([getattr(part, name) for part in parts]) for name in _ENDS)
        return cls(csr.running_total(lengths), *ends)

    def of_group(self, group: int) -> tuple[Ints, Ints]:
        """Return the sources and the destinations of a group's edges."""
        own = slice(self.indptr[group], self.indptr[group + 1])
        return self.source[own], self.dest[own]


_ENDS = ("source", "dest")


Rows = list[Ints]
"""Positions of a group, divided into rows. Every position is in exactly one row."""


def rows_by(place: Ints) -> Rows:
    """Return one row per place, sorted by the first position of the place.

    Parameters
    ----------
    place : ndarray of int64, shape (n_positions,)
        Place of every position, such as its node.

    Examples
    --------
    >>> [row.tolist() for row in rows_by(np.array([3, 1, 3, 1]))]
    [[0, 2], [1, 3]]
    """
    _, first, inverse = np.unique(place, return_index=True, return_inverse=True)
    by_value = _cut(np.argsort(inverse, kind="stable"), csr.running_total(np.bincount(inverse)))
    return [by_value[value] for value in np.argsort(first, kind="stable")]


def runs_of(place: Ints) -> Rows:
    """Return the maximal runs of consecutive positions with the same place.

    Parameters
    ----------
    place : ndarray of int64, shape (n_positions,)
        Place of every position, such as its node.

    Examples
    --------
    >>> [row.tolist() for row in runs_of(np.array([3, 3, 1, 3]))]
    [[0, 1], [2], [3]]
    """
    begins = np.flatnonzero(csr.run_starts(place))
    return _cut(np.arange(len(place)), np.append(begins, len(place)))


def _cut(positions: Ints, ends: Ints) -> Rows:
    """Return the positions between neighboring ends; faster than ``np.split``."""
    return [positions[low:high] for low, high in pairwise(ends.tolist())]


def blocks_of(n_positions: int, length: int) -> Rows:
    """Return rows of `length` consecutive positions, which form the last dimension of a mesh."""
    return list(np.arange(n_positions).reshape(-1, length))
