"""Intervals of integers, ``low[i]:high[i]``, and blocks of them at a stride."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr


def hull(offset: Ints, count: Ints, stride: Ints, repeat: Ints) -> tuple[Ints, Ints]:
    """Return the first element of every strided piece and the one past its last.

    Parameters
    ----------
    offset, count : ndarray of int64
        The first block of a piece.
    stride, repeat : ndarray of int64
        The distance between blocks, which may be negative, and how many there are.
    """
    reach = stride * (repeat - 1)
    return offset + np.minimum(reach, 0), offset + np.maximum(reach, 0) + count


def last_at_or_below(low: Ints, address: Ints) -> Ints:
    """Return the last of the ascending `low` that is at or below an address, or -1.

    Where several begin at one address, as empty intervals do, the last is meant.
    """
    return np.asarray(np.searchsorted(low, address, side="right") - 1)


def union(low: Ints, high: Ints, *, joins_neighbours: bool = True) -> tuple[Ints, Ints]:
    """Return the union of intervals as ascending intervals that share no element.

    Parameters
    ----------
    low, high : ndarray of int64
        In any order.
    joins_neighbours : bool
        Whether intervals that touch but have no element in common become one.

    Examples
    --------
    >>> low, high = np.array([6, 0, 2, 4]), np.array([8, 3, 4, 6])
    >>> [ends.tolist() for ends in union(low, high)]
    [[0], [8]]
    >>> [ends.tolist() for ends in union(low, high, joins_neighbours=False)]
    [[0, 4, 6], [4, 6, 8]]
    """
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    starts = np.ones(len(low), dtype=bool)
    starts[1:] = low[1:] > reach[:-1] if joins_neighbours else low[1:] >= reach[:-1]
    return low[starts], reach[np.roll(starts, -1)]


def overlapping(low: Ints, high: Ints) -> Bools:
    """Mark intervals that share an element with another.

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
