"""Alltoall through leaders that have balanced shares of the data between each pair of nodes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.leaders import Parts
from collplan.planner.errors import AlgorithmError


def alltoall(parts: Parts) -> None:
    """State an alltoall through leaders with balanced shares.

    In each row, leaders collect the pieces of blocks in their shares. Leaders of a column exchange
    the pieces and hand them out. Ranks of one row exchange their blocks directly.

    Parameters
    ----------
    parts : Parts
        Parts of the decomposition, to which the phases are added.

    Raises
    ------
    AlgorithmError
        If the blocks consist of several pieces, as inside another decomposition.
    """
    task, rows, pieces = parts.task, parts.grid.rows, _Pieces(parts)
    collected, handed = (parts.sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    stated = parts.split_rows(range(parts.n_rows))[0]
    for row in stated:
        parts.inside(0, "alltoall", rows[row], 0, task.input, collected, *pieces.collected(row))
        _exchange_inside(parts, row)
    here = task.input.where(pieces.is_alone, collected)
    middle = task.output.where(pieces.keeps_all, handed)
    for column in parts.split_columns()[0]:
        ends = here, middle, *pieces.exchanged(column)
        parts.along(2, "alltoall", parts.grid.column(column), parts.grid.root_row, *ends)
    for row in stated:
        parts.inside(3, "alltoall", rows[row], 0, handed, task.output, *pieces.handed(row))


def _exchange_inside(parts: Parts, row: int) -> None:
    """State the exchange of the blocks between ranks of one row."""
    task, positions = parts.task, parts.grid.rows[row]
    assert task.received is not None
    pairs = (positions[:, None] * task.size + positions).ravel()
    ends = task.input, task.output, task.given.take(pairs), task.received.take(pairs)
    if len(positions) > 1:
        parts.inside(1, "alltoall", positions, 0, *ends)
    elif task.input.differs(task.output)[task.ranks[positions]].any():
        parts.sketch.copy((*parts.path, 1, 0), parts.roles[0], task.ranks[positions], *ends)


class _Pieces:
    """Pieces of the blocks between rows, after cuts at the ends of the shares of columns.

    Pieces are numbered by the row of the source, then by the row of the destination. Within a pair
    of rows, they have the order in which columns get their shares: by destination, then by source.

    Parameters
    ----------
    parts : Parts

    Attributes
    ----------
    row, other : ndarray of int64, shape (n_pieces,)
        Rows of source and destination.
    column : ndarray of int64, shape (n_pieces,)
    pair : ndarray of int64, shape (n_pieces,)
        Row of the task's regions.
    offset, size : ndarray of int64, shape (n_pieces,)
        First element within the block, and number of elements.
    source, dest, sender, receiver : ndarray of int64, shape (n_pieces,)
        Positions of the source, the destination, and the leaders at both ends.

    Raises
    ------
    AlgorithmError
        If a block consists of several pieces already.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        given = parts.task.given
        if not given.is_single or given.repeat is not None:
            raise AlgorithmError(
                "decomposition.shares: balanced cuts the blocks of an alltoall, and inside another "
                "decomposition these are in pieces already; leave shares out there"
            )
        cuts = [
            self._cut(row, other)
            for row in range(parts.n_rows)
            for other in range(parts.n_rows)
            if row != other
        ]
        joined = [np.concatenate(column) for column in zip(*cuts, strict=True)]
        self.row, self.other, self.column, self.pair, self.offset, self.size = joined
        self.source, self.dest = np.divmod(self.pair, parts.task.size)
        leaders = np.stack([parts.grid.column(column) for column in parts.columns])
        self.sender = leaders[self.column, self.row]
        self.receiver = leaders[self.column, self.other]

    def _cut(self, row: int, other: int) -> tuple[Ints, ...]:
        """Return the pieces from a row to another one, as the first six attributes."""
        parts, grid = self.parts, self.parts.grid
        dests = np.concatenate([grid.followers(other, column) for column in parts.columns])
        pairs = (grid.rows[row] * parts.task.size + dests[:, None]).ravel()
        starts = csr.running_total(parts.task.given.totals[pairs])
        shares = Regions.of(np.zeros(1, dtype=np.int64), starts[-1:]).cut(
            grid.n_columns, grid.weights
        )
        bounds = csr.running_total(shares.totals)
        edges = csr.sorted_unique(np.concatenate((starts, bounds)))
        begin = edges[:-1]
        block = last_at_or_below(starts[:-1], begin)
        column = last_at_or_below(bounds[:-1], begin)
        rows = (np.full(len(begin), number) for number in (row, other))
        return *rows, column, pairs[block], begin - starts[block], np.diff(edges)

    @cached_property
    def is_alone(self) -> Bools:
        """Mask of the ranks that are alone in their row, where nothing is collected."""
        alone = np.zeros(self.parts.sketch.n_ranks, dtype=np.bool_)
        for positions in self.parts.grid.rows:
            alone[self.parts.task.ranks[positions]] = len(positions) == 1
        return alone

    @cached_property
    def keeps_all(self) -> Bools:
        """Mask of the ranks that receive only pieces for themselves from leaders of other rows."""
        keeps = np.ones(self.parts.sketch.n_ranks, dtype=np.bool_)
        ranks = self.parts.task.ranks
        keeps[ranks[self.receiver[self.receiver != self.dest]]] = False
        return keeps

    @cached_property
    def given(self) -> Ints:
        """Offsets of the pieces at their sources, in elements."""
        return np.asarray(self.parts.task.given.low[self.pair] + self.offset)

    @cached_property
    def received(self) -> Ints:
        """Offsets of the pieces at their destinations, in elements."""
        assert self.parts.task.received is not None
        return np.asarray(self.parts.task.received.low[self.pair] + self.offset)

    @cached_property
    def at_sender(self) -> Ints:
        """Offsets of the pieces at the leaders that send them, in elements."""
        staged = self._packed(self.sender)
        return np.where(self.is_alone[self.parts.task.ranks[self.sender]], self.given, staged)

    @cached_property
    def at_receiver(self) -> Ints:
        """Offsets of the pieces at the leaders that hand them out, in elements."""
        staged = self._packed(self.receiver)
        return np.where(self.keeps_all[self.parts.task.ranks[self.receiver]], self.received, staged)

    def _packed(self, leader: Ints) -> Ints:
        """Return the offsets of pieces that are contiguous at each leader, in elements."""
        order = np.argsort(leader, kind="stable")
        ends = np.cumsum(self.size[order])
        _, first, number = np.unique(leader[order], return_index=True, return_inverse=True)
        begin = ends - self.size[order]
        place = np.empty(len(leader), dtype=np.int64)
        place[order] = begin - begin[first][number]
        return place

    def collected(self, row: int) -> tuple[Regions, Regions]:
        """Return the places, at both ends, of pieces that ranks of a row send to its leaders."""
        here = np.flatnonzero(self.row == row)
        here = here[~self.is_alone[self.parts.task.ranks[self.sender[here]]]]
        keys = (self.source, self.sender)
        return self._regions(here, row, keys, (self.given, self.at_sender))

    def exchanged(self, column: int) -> tuple[Regions, Regions]:
        """Return the places, at both ends, of the pieces that the leaders of a column exchange."""
        here, n = np.flatnonzero(self.column == column), self.parts.n_rows
        number = self.row[here] * n + self.other[here]
        return self._by_number(here, number, n * n, (self.at_sender, self.at_receiver))

    def handed(self, row: int) -> tuple[Regions, Regions]:
        """Return the places, at both ends, of the pieces that leaders of a row hand out."""
        here = np.flatnonzero(self.other == row)
        here = here[~self.keeps_all[self.parts.task.ranks[self.receiver[here]]]]
        keys = (self.receiver, self.dest)
        return self._regions(here, row, keys, (self.at_receiver, self.received))

    def _regions(
        self, here: Ints, row: int, keys: tuple[Ints, Ints], begins: tuple[Ints, Ints]
    ) -> tuple[Regions, Regions]:
        """Return regions of some pieces at both ends, one row per pair of positions of a row.

        Parameters
        ----------
        here : ndarray of int64
            Numbers of the pieces.
        row : int
        keys : pair of ndarray of int64, shape (n_pieces,)
            Positions between which each piece is sent.
        begins : pair of ndarray of int64, shape (n_pieces,)
            Offsets of all pieces at both ends.
        """
        positions = self.parts.grid.rows[row]
        place = np.zeros(self.parts.task.size, dtype=np.int64)
        place[positions] = np.arange(len(positions))
        source, dest = (place[key[here]] for key in keys)
        n = len(positions)
        return self._by_number(here, source * n + dest, n * n, begins)

    def _by_number(
        self, here: Ints, number: Ints, n: int, begins: tuple[Ints, Ints]
    ) -> tuple[Regions, Regions]:
        """Return regions of some pieces at both ends, in `n` rows given by `number`."""
        order = np.argsort(number, kind="stable")
        indptr, rows = csr.indptr_of(number[order], n), here[order]
        low, high = (Regions(indptr, begin[rows], self.size[rows]) for begin in begins)
        return low.merged(), high.merged()
