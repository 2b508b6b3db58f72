"""Neighborhood collectives through leaders: few messages between each pair of nodes.

References
----------
Bienz, Gropp, Olson, "Reducing communication in algebraic multigrid with multi-step node aware
communication", IJHPCA 2020.
Collom, Li, Bienz, "Optimizing irregular communication with neighborhood collectives and
locality-aware parallelism", EuroMPI 2023.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.blueprint.groups import GroupEdges
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.balanced import BalancedGrid
from collplan.planner.decompose.leaders import Parts
from collplan.planner.errors import AlgorithmError


def exchange(parts: Parts) -> None:
    """State a neighborhood collective through leaders.

    In each row, leaders collect the blocks for other rows, each block once for a row that has
    several of its destinations. Leaders of a column exchange the blocks, and hand them out. Ranks
    of one row exchange their blocks directly.

    With equal shares, all blocks from one row to another are one message, and these messages are
    divided among the columns so that leaders send and receive similar numbers of elements. With
    balanced shares, each column carries a part of the blocks between each pair of rows.

    Parameters
    ----------
    parts : Parts
        Parts of the decomposition, to which the phases are added.

    Raises
    ------
    AlgorithmError
        If the blocks lie at a stride, as inside another decomposition.
    """
    task, rows, sketch = parts.task, parts.grid.rows, parts.sketch
    assert task.received is not None
    if parts.n_rows == 1:
        parts.inside(0, task.kind, rows[0], 0, *_ends_of(parts))
        return
    collected, handed = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    pieces = _NeighborPieces(parts)
    for row in range(parts.n_rows):
        _state(parts, 0, row, task.input, collected, pieces.collected(row))
    here = task.input.where(pieces.on_ranks(pieces.sends_own), collected)
    middle = task.output.where(pieces.on_ranks(pieces.keeps_all), handed)
    for column in parts.columns:
        members = parts.grid.column(column)
        parts.along(1, task.kind, members, 0, here, middle, *pieces.exchanged(column))
    for row in range(parts.n_rows):
        _state(parts, 2, row, task.input, task.output, pieces.inside(row))
        _state(parts, 3, row, handed, task.output, pieces.handed(row))


def _ends_of(parts: Parts) -> tuple[Any, ...]:
    task = parts.task
    return task.input, task.output, task.given, task.received, task.edges


class _Sent(NamedTuple):
    """Blocks that are sent between the positions of a group, as fields of a task."""

    given: Regions
    received: Regions
    edges: GroupEdges


def _state(parts: Parts, phase: int, row: int, input: Any, output: Any, sent: _Sent) -> None:
    """State what the positions of a row send to each other; a single position copies."""
    positions = parts.grid.rows[row]
    if len(positions) > 1:
        parts.inside(phase, parts.task.kind, positions, 0, input, output, *sent)
        return
    whole = [np.arange(len(sent.given))]
    both = sent.given.union(whole), sent.received.union(whole)
    ranks = parts.task.ranks[positions]
    parts.sketch.copy((*parts.path, phase, 1), parts.roles[0], ranks, input, output, *both)


class _NeighborPieces:
    """Pieces of the blocks between rows, each of which one column carries.

    A block that several positions of a row receive is one block. Blocks are sorted by the rows of
    source and destination, and pieces by block.

    Parameters
    ----------
    parts : Parts

    Attributes
    ----------
    source, row, other, low, size : ndarray of int64, shape (n_blocks,)
        Position of the source, its row, the row of the destinations, first element at the source,
        and number of elements.
    block, offset, length, column : ndarray of int64, shape (n_pieces,)
        Block of each piece, first element within the block, number of elements, and column.
    sender, receiver : ndarray of int64, shape (n_pieces,)
        Positions of the leaders at both ends.
    piece, dest, high : ndarray of int64, shape (n_deliveries,)
        Pieces and the positions that receive them, and their first elements there.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts, task = parts, parts.task
        assert task.edges is not None
        assert task.received is not None
        if task.given.repeat is not None or task.received.repeat is not None:
            raise AlgorithmError(
                "decomposition: the blocks between neighbors lie at a stride inside another "
                "decomposition; leave the inner one out"
            )
        self.row_of = np.empty(task.size, dtype=np.int64)
        for row, positions in enumerate(parts.grid.rows):
            self.row_of[positions] = row
        self._find_blocks(task.edges, task.given, task.received)
        self._cut()
        leaders = np.stack([parts.grid.column(column) for column in parts.columns])
        self.sender = leaders[self.column, self.row[self.block]]
        self.receiver = leaders[self.column, self.other[self.block]]
        self._deliver()

    def _find_blocks(self, edges: GroupEdges, given: Regions, received: Regions) -> None:
        """Find the different blocks between rows, and the destinations of each."""
        edge = csr.row_numbers(given.indptr)
        source, dest = edges.source[edge], edges.dest[edge]
        outer = np.flatnonzero(self.row_of[source] != self.row_of[dest])
        source, dest, low, size = source[outer], dest[outer], given.low[outer], given.count[outer]
        keys = (size, low, source, self.row_of[dest], self.row_of[source])
        order = np.lexsort(keys)
        bounds = csr.run_bounds(*(key[order] for key in keys))
        first = order[bounds[:-1]]
        self.source, self.low, self.size = source[first], low[first], size[first]
        self.row, self.other = self.row_of[self.source], self.row_of[dest[first]]
        self._wanted = csr.row_numbers(bounds), dest[order], received.low[outer][order]

    def _cut(self) -> None:
        """Cut the blocks between each pair of rows into the shares of columns."""
        grid, starts = self.parts.grid, csr.running_total(self.size)
        ends = csr.run_bounds(self.row, self.other)
        totals = np.diff(starts[ends])
        if isinstance(grid, BalancedGrid):
            shares = Regions.of(starts[ends[:-1]], totals).cut(grid.n_columns, grid.weights).low
            edges = csr.sorted_unique(np.concatenate((starts, shares)))
            self.block = last_at_or_below(starts[:-1], edges[:-1])
            self.column = last_at_or_below(shares, edges[:-1]) % grid.n_columns
            self.offset, self.length = edges[:-1] - starts[self.block], np.diff(edges)
            return
        pair = csr.row_numbers(ends)
        self.block, self.offset = np.arange(len(self.size)), np.zeros(len(self.size), dtype=int)
        self.length, self.column = self.size, self._columns(pair, ends, totals)[pair]

    def _columns(self, pair: Ints, ends: Ints, totals: Ints) -> Ints:
        """Return the column that carries the blocks between each pair of rows.

        The longest messages come first. Each gets the column whose leaders send and receive the
        least at this moment, and among these one whose leader is the source of many elements.
        """
        grid, columns = self.parts.grid, self.parts.columns
        chosen = np.zeros(len(totals), dtype=np.int64)
        if grid.n_columns == 1:
            return chosen
        own = np.zeros((len(totals), grid.n_columns), dtype=np.int64)
        for column in columns:
            is_own = grid.column(column)[self.row] == self.source
            np.add.at(own[:, column], pair[is_own], self.size[is_own])
        sent, received = np.zeros((2, self.parts.n_rows, grid.n_columns), dtype=np.int64)
        first = ends[:-1]
        row, other = self.row[first], self.other[first]
        for one in np.argsort(-totals, kind="stable").tolist():
            load = np.maximum(sent[row[one]], received[other[one]])
            least = np.flatnonzero(load == load.min())
            best = least[own[one, least].argmax()]
            chosen[one] = best
            sent[row[one], best] += totals[one]
            received[other[one], best] += totals[one]
        return chosen

    def _deliver(self) -> None:
        """Find the positions that receive each piece."""
        block, dest, high = self._wanted
        first = csr.indptr_of(self.block, len(self.size))
        n_each = np.diff(first)[block]
        self.piece = csr.ranges(first[:-1][block], n_each)
        which = csr.expand(n_each)[0]
        self.dest, self.high = dest[which], high[which] + self.offset[self.piece]

    def on_ranks(self, marks: Bools) -> Bools:
        """Return marks of positions as marks of ranks."""
        found = np.ones(self.parts.sketch.n_ranks, dtype=np.bool_)
        found[self.parts.task.ranks] = marks
        return found

    @cached_property
    def sends_own(self) -> Bools:
        """Mask of the positions that send only their own blocks to other rows."""
        own = np.ones(self.parts.task.size, dtype=np.bool_)
        own[self.sender[self.sender != self.source[self.block]]] = False
        return own

    @cached_property
    def keeps_all(self) -> Bools:
        """Mask of the positions that receive pieces from other rows once, and for themselves."""
        keeps = np.ones(self.parts.task.size, dtype=np.bool_)
        receiver = self.receiver[self.piece]
        n_each = np.bincount(self.piece, minlength=len(self.block))
        keeps[receiver[(receiver != self.dest) | (n_each[self.piece] > 1)]] = False
        return keeps

    @cached_property
    def given(self) -> Ints:
        """Offsets of the pieces at their sources, in elements."""
        return np.asarray(self.low[self.block] + self.offset)

    @cached_property
    def at_sender(self) -> Ints:
        """Offsets of the pieces at the leaders that send them, in elements."""
        packed = self._packed(self.sender, self.receiver)
        return np.where(self.sends_own[self.sender], self.given, packed)

    @cached_property
    def at_receiver(self) -> Ints:
        """Offsets of the pieces at the leaders that receive them, in elements."""
        final = np.empty(len(self.block), dtype=np.int64)
        final[self.piece] = self.high
        packed = self._packed(self.receiver, self.sender)
        return np.where(self.keeps_all[self.receiver], final, packed)

    def _packed(self, leader: Ints, other: Ints) -> Ints:
        """Return offsets at leaders, where the pieces from or for each other leader are joined."""
        order = np.lexsort((other, leader))
        place = np.empty(len(leader), dtype=np.int64)
        place[order] = csr.group_offsets(leader[order], self.length[order])
        return place

    def collected(self, row: int) -> _Sent:
        """Return the pieces that the leaders of a row collect."""
        here = np.flatnonzero((self.row[self.block] == row) & ~self.sends_own[self.sender])
        ends = self.source[self.block[here]], self.sender[here]
        places = self.given[here], self.at_sender[here]
        return _sent(self.parts.grid.rows[row], ends, places, self.length[here])

    def exchanged(self, column: int) -> _Sent:
        """Return the pieces that the leaders of a column exchange."""
        here = np.flatnonzero(self.column == column)
        ends = self.sender[here], self.receiver[here]
        places = self.at_sender[here], self.at_receiver[here]
        return _sent(self.parts.grid.column(column), ends, places, self.length[here])

    def handed(self, row: int) -> _Sent:
        """Return the pieces that the leaders of a row hand out."""
        receiver = self.receiver[self.piece]
        here = np.flatnonzero((self.row_of[receiver] == row) & ~self.keeps_all[receiver])
        piece = self.piece[here]
        places = self.at_receiver[piece], self.high[here]
        ends = receiver[here], self.dest[here]
        return _sent(self.parts.grid.rows[row], ends, places, self.length[piece])

    def inside(self, row: int) -> _Sent:
        """Return the blocks between positions of a row."""
        task = self.parts.task
        assert task.edges is not None
        assert task.received is not None
        edge = csr.row_numbers(task.given.indptr)
        source, dest = task.edges.source[edge], task.edges.dest[edge]
        here = np.flatnonzero((self.row_of[source] == row) & (self.row_of[dest] == row))
        places = task.given.low[here], task.received.low[here]
        ends = source[here], dest[here]
        return _sent(self.parts.grid.rows[row], ends, places, task.given.count[here])


def _sent(
    positions: Ints, ends: tuple[Ints, Ints], places: tuple[Ints, Ints], counts: Ints
) -> _Sent:
    """Return intervals that are sent between positions, with one row per pair of positions.

    Parameters
    ----------
    positions : ndarray of int64
        Positions of the group, in order.
    ends, places : pair of ndarray of int64, shape (n_intervals,)
        Positions, and offsets in elements, at which each interval is read and written.
    counts : ndarray of int64, shape (n_intervals,)
    """
    number = np.empty(int(positions.max()) + 1, dtype=np.int64)
    number[positions] = np.arange(len(positions))
    source, dest = (number[end] for end in ends)
    order = np.lexsort((dest, source))
    source, dest, counts = source[order], dest[order], counts[order]
    low, high = (place[order] for place in places)
    joins = (source[1:] == source[:-1]) & (dest[1:] == dest[:-1])
    edges = np.flatnonzero(np.concatenate(([True], ~joins))[: len(order)])
    for place in (low, high):
        joins &= place[:-1] + counts[:-1] == place[1:]
    first = np.flatnonzero(np.concatenate(([True], ~joins))[: len(order)])
    sizes = np.diff(csr.running_total(counts)[np.append(first, len(order))])
    indptr = np.append(np.searchsorted(first, edges), len(first))
    group = GroupEdges(np.array([0, len(edges)]), source[edges], dest[edges])
    return _Sent(Regions(indptr, low[first], sizes), Regions(indptr, high[first], sizes), group)
