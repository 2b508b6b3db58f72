"""Ragged arrays in CSR form, groups of equal keys, and permutations.

A ragged array of n rows consists of an `indptr` of n + 1 offsets and of flat columns: row i has
the entries ``indptr[i]:indptr[i+1]``. The *lengths* of rows are the differences of offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Bools, Ints

Int64s = npt.NDArray[np.int64]


def running_total(lengths: npt.ArrayLike) -> Int64s:
    """Return the cumulative sums of lengths from 0 on, which are the indptr of their rows.

    Parameters
    ----------
    lengths : array_like of int, shape (n,)

    Returns
    -------
    ndarray of int64, shape (n + 1,)
    """
    lengths = np.asarray(lengths)
    total = np.zeros(len(lengths) + 1, dtype=np.int64)
    lengths.cumsum(out=total[1:])
    return total


def repeated(entry: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Return an array with n times the one entry of another; faster than ``broadcast_to``.

    Parameters
    ----------
    entry : ndarray, shape (1,)
    n : int

    Returns
    -------
    ndarray, shape (n,)
        View of `entry` with stride 0.
    """
    return np.ndarray(n, entry.dtype, entry, strides=(0,))


def lengths_of(indptr: npt.NDArray[Any]) -> Any:
    """Return the length of every row; faster than ``np.diff``.

    Parameters
    ----------
    indptr : ndarray of int, shape (n_rows + 1,)

    Returns
    -------
    ndarray of int, shape (n_rows,)
    """
    return indptr[1:] - indptr[:-1]


def row_numbers(indptr: Ints) -> Int64s:
    """Return the row of every entry.

    Parameters
    ----------
    indptr : ndarray of int, shape (n_rows + 1,)

    Returns
    -------
    ndarray of int64, shape (n_entries,)

    Examples
    --------
    >>> row_numbers(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    lengths = lengths_of(indptr)
    if _is_short(lengths):
        return np.flatnonzero(lengths)
    return np.arange(len(lengths)).repeat(lengths)


def _is_short(lengths: Ints) -> bool:
    """Return whether every row has at most one entry, which holds for most tables."""
    return bool(lengths.max(initial=0) <= 1)


def indptr_of(rows: Ints, n_rows: int) -> Int64s:
    """Return the indptr of `n_rows` rows from the ascending row number of every entry.

    Parameters
    ----------
    rows : ndarray of int, shape (n_entries,)
    n_rows : int

    Returns
    -------
    ndarray of int64, shape (n_rows + 1,)

    Examples
    --------
    >>> indptr_of(np.array([0, 0, 2]), 3).tolist()
    [0, 2, 2, 3]
    """
    return running_total(np.bincount(rows, minlength=n_rows))


def expand(lengths: Ints) -> tuple[Int64s, Int64s]:
    """Return the row of every entry of rows of these lengths, and its index in that row.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_rows,)

    Returns
    -------
    row, place : ndarray of int64, shape (n_entries,)

    Examples
    --------
    >>> row, place = expand(np.array([2, 0, 3]))
    >>> row.tolist(), place.tolist()
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    starts = running_total(lengths)
    place = np.arange(starts[-1])
    place -= np.repeat(starts[:-1], lengths)
    return np.repeat(np.arange(len(lengths)), lengths), place


def ranges(first: Ints, lengths: Ints) -> Int64s:
    """Return the integers of all ranges ``first[i]:first[i] + lengths[i]``, range after range.

    Parameters
    ----------
    first, lengths : ndarray of int, shape (n_ranges,)

    Returns
    -------
    ndarray of int64, shape (n,)
        `n` is the sum of the lengths.

    Examples
    --------
    >>> ranges(np.array([7, 3]), np.array([2, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    if _is_short(lengths):
        return first[lengths > 0].astype(np.int64, copy=False)
    starts = running_total(lengths)
    numbers = np.repeat(first - starts[:-1], lengths)
    numbers += np.arange(starts[-1])
    return numbers


def take_rows(indptr: Ints, rows: Ints) -> tuple[Int64s, Int64s]:
    """Return the indptr of the given rows, in the given order, and the indices of their entries.

    Parameters
    ----------
    indptr : ndarray of int, shape (n_rows + 1,)
    rows : ndarray of int, shape (n_taken,)

    Returns
    -------
    indptr : ndarray of int64, shape (n_taken + 1,)
    entries : ndarray of int64

    Examples
    --------
    >>> taken, entries = take_rows(np.array([0, 2, 3, 5]), np.array([2, 0]))
    >>> taken.tolist(), entries.tolist()
    ([0, 2, 4], [3, 4, 0, 1])
    """
    begins = indptr[:-1][rows]
    lengths = indptr[1:][rows] - begins
    return running_total(lengths), ranges(begins, lengths)


def row_sums(indptr: Ints, values: npt.NDArray[Any]) -> Int64s:
    """Return the sum of the values of every row.

    Parameters
    ----------
    indptr : ndarray of int, shape (n_rows + 1,)
    values : ndarray of int or bool, shape (n_entries,)

    Returns
    -------
    ndarray of int64, shape (n_rows,)
    """
    return np.asarray(lengths_of(running_total(values)[indptr]))


def run_starts(*columns: Ints) -> Bools:
    """Mark the entries that differ from the entry before them in any of the columns.

    Parameters
    ----------
    *columns : ndarray of int, shape (n,)

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    >>> run_starts(np.array([4, 4, 4, 6]), np.array([1, 1, 2, 2])).tolist()
    [True, False, True, True]
    """
    starts = np.ones(len(columns[0]), dtype=bool)
    starts[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def first_true(mask: Bools) -> int:
    """Return the index of the first entry that is True; -1 if there is none.

    Examples
    --------
    >>> first_true(np.array([False, True, True])), first_true(np.array([False]))
    (1, -1)
    """
    return int(np.argmax(mask)) if mask.any() else -1


def run_bounds(*columns: Ints) -> Int64s:
    """Return the indptr of runs of entries that are equal in all columns.

    Parameters
    ----------
    *columns : ndarray of int, shape (n,)

    Returns
    -------
    ndarray of int64, shape (n_runs + 1,)

    Examples
    --------
    >>> run_bounds(np.array([4, 4, 6])).tolist()
    [0, 2, 3]
    """
    return np.append(np.flatnonzero(run_starts(*columns)), len(columns[0]))


DENSE: Final = 16
"""Largest ratio of the range of values to their number at which they count as dense."""


def sorted_unique(values: Ints) -> Ints:
    """Return the distinct values in ascending order; see `Numbering.of`."""
    return Numbering.of(values).values


@dataclass(frozen=True, eq=False)
class Numbering:
    """Distinct values in ascending order, numbered from 0.

    Parameters
    ----------
    values : ndarray of int
        Distinct values in ascending order.
    step : int
        Common divisor of the differences between values.
    is_there : ndarray of bool, optional
        Whether each of the integers ``values[0] + i * step`` is a value; None if values are not
        dense.
    """

    values: Ints
    step: int = 1
    is_there: Bools | None = None

    @classmethod
    def of(cls, values: Ints) -> Numbering:
        """Number the distinct values of an array, which may be in any order.

        Numpy's own function uses hashing, which is slow for millions of values. Here, dense
        values and dense multiples, such as addresses of equal blocks, are marked in one pass.
        Other values are sorted.
        """
        if not len(values):
            return cls(values)
        least = values.min()
        extent, step = int(values.max()) - int(least), 1
        if extent >= DENSE * len(values):
            step = int(np.gcd.reduce(values - least))
        if extent < DENSE * step * len(values):
            is_there = np.zeros(extent // step + 1, dtype=bool)
            is_there[_steps(values, least, step)] = True
            return cls(np.flatnonzero(is_there) * step + least, step, is_there)
        ordered = np.sort(values)
        return cls(ordered[run_starts(ordered)])

    def number(self, values: Ints) -> Ints:
        """Return the numbers of some of these values, in any order.

        Parameters
        ----------
        values : ndarray of int
            Values of this numbering, with or without repetitions.

        Returns
        -------
        ndarray of int64

        Examples
        --------
        >>> Numbering.of(np.array([40, 10, 40, 30])).number(np.array([40, 10])).tolist()
        [2, 0]
        """
        if self._table is None:
            return np.searchsorted(self.values, values)
        return np.asarray(self._table[_steps(values, self.values[0], self.step)], dtype=np.int64)

    @cached_property
    def _table(self) -> Ints | None:
        """Number of each entry of `is_there`; None if a binary search is faster."""
        if self.is_there is None or len(self.is_there) > DENSE * len(self.values):
            return None
        table: Ints = np.cumsum(self.is_there, dtype=np.int32)
        table -= 1
        return table


def _steps(values: Ints, least: Any, step: int) -> Ints:
    """Return the number of steps from the least value to each value."""
    steps = values - least
    return np.asarray(steps if step == 1 else steps // step)


def joint_key(major: Ints, minor: Ints, n_minor: int) -> Int64s:
    """Return one key for two numbers, which sorts by `major` and then by `minor` < `n_minor`.

    Parameters
    ----------
    major, minor : ndarray of int, shape (n,)
    n_minor : int

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    return major.astype(np.int64) * n_minor + minor


def inverse(order: Ints) -> Ints:
    """Return the inverse of a permutation: the index of every entry in `order`."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def group_by(key: Ints, n_groups: int) -> tuple[Int64s, Int64s]:
    """Return the entries of each group in order, group after group, and the indptr of the groups.

    Parameters
    ----------
    key : ndarray of int
        Group of every entry, less than `n_groups`.
    n_groups : int
        Number of groups.

    Returns
    -------
    order : ndarray of int64, shape (n_entries,)
    indptr : ndarray of int64, shape (n_groups + 1,)

    Examples
    --------
    >>> order, indptr = group_by(np.array([1, 0, 1]), 3)
    >>> order.tolist(), indptr.tolist()
    ([1, 0, 2], [0, 1, 3, 3])
    """
    return np.argsort(key, kind="stable"), indptr_of(key, n_groups)


def occurrence(keys: Ints) -> Int64s:
    """Return the number of equal keys before each key.

    Parameters
    ----------
    keys : ndarray of int, shape (n,)
        Keys in any order.

    Returns
    -------
    ndarray of int64, shape (n,)

    Examples
    --------
    >>> occurrence(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    count = np.empty(len(keys), dtype=np.int64)
    count[order] = expand(lengths_of(run_bounds(keys[order])))[1]
    return count


def group_offsets(group: Ints, sizes: Ints) -> Int64s:
    """Return the offset of each entry if the entries of its group follow each other from 0 on.

    Parameters
    ----------
    group, sizes : ndarray of int, shape (n,)
        Group and size of every entry.

    Returns
    -------
    ndarray of int64, shape (n,)

    Examples
    --------
    >>> group_offsets(np.array([1, 0, 1, 1]), np.array([5, 2, 3, 4])).tolist()
    [0, 0, 5, 8]
    """
    order = np.argsort(group, kind="stable")
    total = running_total(sizes[order])[:-1]
    bounds = run_bounds(group[order])
    begins = np.empty(len(sizes), dtype=np.int64)
    begins[order] = total - np.repeat(total[bounds[:-1]], lengths_of(bounds))
    return begins
