"""Rounds of pipelines in which each edge of a tree carries a block every few rounds."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints


class Turns:
    """Edges that carry a block every `period` rounds, each from a first round on.

    Parameters
    ----------
    first : ndarray of int64, shape (n_edges,)
        Round in which each edge carries block 0.
    period : int
        Number of rounds from one block of an edge to its next one.
    n_blocks : int
        Number of blocks that each edge carries.
    rows : ndarray of int64, optional
        Edges to take into account; by default all.

    Examples
    --------
    >>> turns = Turns(np.array([0, 2, 1]), 2, 2)
    >>> [tuple(column.tolist() for column in turns.at(number)) for number in range(5)]
    [([0], [0]), ([2], [0]), ([0, 1], [1, 0]), ([2], [1]), ([1], [1])]
    """

    def __init__(self, first: Ints, period: int, n_blocks: int, rows: Ints | None = None) -> None:
        self._first, self._period, self._n_blocks = first, period, n_blocks
        rows = np.arange(len(first)) if rows is None else rows
        rows = rows[np.argsort(first[rows], kind="stable")]
        residue = first[rows] % period
        self._rows = [rows[residue == number] for number in range(period)]
        self._begins = [first[some] for some in self._rows]

    def at(self, number: int) -> tuple[Ints, Ints]:
        """Return the edges that carry a block in a round, ascending, and the block of each."""
        turn = number % self._period
        most = number - self._period * self._n_blocks
        low, high = np.searchsorted(self._begins[turn], (most, number), side="right")
        used = np.sort(self._rows[turn][low:high])
        return used, (number - self._first[used]) // self._period
