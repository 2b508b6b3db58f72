"""Intervals of integers, ``low[i]:high[i]``, and strided blocks of integers."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr


def hull(offset: Ints, count: Ints, stride: Ints, repeat: Ints) -> tuple[Ints, Ints]:
    """Return the bounds of strided pieces: the first element, and the one past the last.

    Parameters
    ----------
    offset, count : ndarray of int64
        First element and number of elements of the first block of each piece.
    stride, repeat : ndarray of int64
        Distance between the blocks of each piece, which may be negative, and their number.

    Returns
    -------
    low, high : ndarray of int64
    """
    reach = stride * (repeat - 1)
    return offset + np.minimum(reach, 0), offset + np.maximum(reach, 0) + count


def last_at_or_below(low: Ints, address: Ints) -> Ints:
    """Return the index of the last interval that begins at or below each address; -1 for none.

    `low` is ascending. If several intervals begin at one address, because some are empty, the
    last of them is returned.

    Parameters
    ----------
    low : ndarray of int64, shape (n,)
        First elements of intervals.
    address : ndarray of int64

    Returns
    -------
    ndarray of int64
    """
    return np.asarray(np.searchsorted(low, address, side="right") - 1)


def union(low: Ints, high: Ints, *, joins_neighbors: bool = True) -> tuple[Ints, Ints]:
    """Return the union of intervals as ascending disjoint intervals.

    Parameters
    ----------
    low, high : ndarray of int64
        Intervals in any order.
    joins_neighbors : bool
        Whether adjacent intervals without a common element are joined.

    Returns
    -------
    low, high : ndarray of int64

    Examples
    --------
    >>> low, high = np.array([6, 0, 2, 4]), np.array([8, 3, 4, 6])
    >>> [ends.tolist() for ends in union(low, high)]
    [[0], [8]]
    >>> [ends.tolist() for ends in union(low, high, joins_neighbors=False)]
    [[0, 4, 6], [4, 6, 8]]
    """
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    starts = np.ones(len(low), dtype=bool)
    starts[1:] = low[1:] > reach[:-1] if joins_neighbors else low[1:] >= reach[:-1]
    return low[starts], reach[np.roll(starts, -1)]


def overlapping(low: Ints, high: Ints) -> Bools:
    """Mark intervals that share an element with another interval.

    Parameters
    ----------
    low, high : ndarray of int64, shape (n,)
        Intervals in any order.

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    >>> overlapping(np.array([6, 0, 2, 4]), np.array([8, 3, 4, 6])).tolist()
    [False, True, True, False]
    """
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    marked = np.zeros(len(order), dtype=bool)
    marked[1:] = low[order][1:] < reach[:-1]
    marked[:-1] |= marked[1:]
    return marked[csr.inverse(order)]
