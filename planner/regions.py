"""Regions: what components move, as intervals of a vector's elements, a row a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.arrays import Ints
from planner.pieces import running_total, sorted_unique


@dataclass(frozen=True, eq=False)
class Regions:
    """Intervals of elements in CSR: row i is ``low[j]:low[j]+count[j]``, j in its slice.

    The order of intervals within a row is the order its elements are sent in.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_rows + 1,)
    low, count : ndarray of int64, shape (n_intervals,)
    """

    indptr: Ints
    low: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(cls, low: Ints, count: Ints) -> Regions:
        """Return one interval a row."""
        return cls(np.arange(len(low) + 1), np.asarray(low), np.asarray(count))

    @classmethod
    def stack(cls, parts: Sequence[Regions]) -> Regions:
        """Return the rows of all parts, one part after another."""
        if len(parts) == 1:
            return parts[0]
        lengths = [np.diff(part.indptr) for part in parts]
        return cls(
            running_total(np.concatenate(lengths)),
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.count for part in parts]),
        )

    @cached_property
    def totals(self) -> Ints:
        """Elements of every row."""
        running = running_total(self.count)
        return running[self.indptr[1:]] - running[self.indptr[:-1]]

    @cached_property
    def is_packed(self) -> bool:
        """Whether rows are single intervals, each beginning where the one before it ends."""
        if len(self.low) != len(self) or (np.diff(self.indptr) != 1).any():
            return False
        return bool((self.low[:-1] + self.count[:-1] == self.low[1:]).all())

    def take(self, rows: Ints) -> Regions:
        """Return the given rows, in the given order."""
        lengths = np.diff(self.indptr)[rows]
        indptr = running_total(lengths)
        index = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Regions(indptr, self.low[index], self.count[index])

    def union(self, rows: Iterable[Ints | Sequence[int]]) -> Regions:
        """Return a row for every list of rows: their intervals, one row after another."""
        lists = [np.asarray(some, dtype=np.int64) for some in rows]
        taken = self.take(np.concatenate([np.zeros(0, dtype=np.int64), *lists]))
        ends = running_total([len(some) for some in lists])
        return Regions(taken.indptr[ends], taken.low, taken.count)

    def shifted(self, by: int) -> Regions:
        """Return the same rows, `by` elements further on."""
        return Regions(self.indptr, self.low + by, self.count)

    def cut(self, parts: int) -> Regions:
        """Cut every row into `parts` rows whose sizes differ by at most one element.

        Examples
        --------
        >>> Regions.of(np.array([10]), np.array([7])).cut(3).low.tolist()
        [10, 13, 15]
        """
        if parts == 1:
            return self
        share, rest = np.divmod(self.totals, parts)
        sizes = share[:, None] + (np.arange(parts) < rest[:, None])
        if len(self.low) == len(self) and (np.diff(self.indptr) == 1).all():
            displs = np.cumsum(sizes, axis=1) - sizes + self.low[:, None]
            return Regions.of(displs.ravel(), sizes.ravel())
        starts, bounds = running_total(self.count), running_total(sizes.ravel())
        edges = sorted_unique(np.concatenate((starts, bounds)))
        begin, count = edges[:-1], np.diff(edges)
        interval = np.searchsorted(starts, begin, side="right") - 1
        row = np.searchsorted(bounds, begin, side="right") - 1
        low = self.low[interval] + begin - starts[interval] if len(begin) else begin
        return Regions(running_total(np.bincount(row, minlength=parts * len(self))), low, count)
