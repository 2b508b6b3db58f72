"""Alltoall through leaders, and the places of its blocks at each step.

References
----------
Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane
communication", CLUSTER 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.decompose.leaders import Parts


def alltoall(parts: Parts) -> None:
    """State an alltoall through leaders.

    In each row, leaders collect the blocks for the destinations that their columns serve. Leaders
    of a column exchange the blocks. Finally, each leader hands out the blocks to its team.

    At leaders, blocks are sorted by source, then by destination. So each message arrives in one
    contiguous piece, and only messages that leaders forward consist of several pieces.

    Parameters
    ----------
    parts : Parts
        Parts of the decomposition, to which the phases are added.
    """
    task, sketch, grid = parts.task, parts.sketch, parts.grid
    if parts.n_rows == 1:
        ends = task.input, task.output, task.given, task.received
        parts.inside(1, "alltoall", grid.rows[0], 0, *ends)
        return
    blocks = _Blocks(parts)
    collected, handed = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    has_collected = np.zeros(sketch.n_ranks, dtype=np.bool_)
    for row in parts.split_rows(range(parts.n_rows))[0]:
        ends = task.input, collected, *blocks.collected(row)
        has_collected |= parts.inside(0, "alltoall", grid.rows[row], 0, *ends)
    parts.repeat(has_collected, range(parts.n_rows))
    here = collected.where(has_collected, task.input)
    middle = task.output.where(parts.leads_itself(), handed)
    for column in parts.split_columns()[0]:
        members = grid.column(column)
        ends = here, middle, *blocks.exchanged(column, has_collected[task.ranks[members]])
        parts.along(1, "alltoall", members, grid.root_row, *ends)
    for leader, team in parts.teams():
        parts.in_team(2, "scatter", leader, team, handed, task.output, *blocks.handed(team))


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Places of the blocks of an alltoall at ranks and leaders.

    Parameters
    ----------
    parts : Parts
    """

    parts: Parts

    @property
    def given(self) -> Regions:
        """The contributions of ranks, one row per pair of ranks."""
        return self.parts.task.given

    @property
    def received(self) -> Regions:
        """The results of ranks, one row per pair of ranks."""
        assert self.parts.task.received is not None
        return self.parts.task.received

    @cached_property
    def by_row(self) -> Ints:
        """All positions, row by row, which is the order of sources at leaders that hand out."""
        return np.concatenate(self.parts.grid.rows)

    @cached_property
    def row_of(self) -> Ints:
        """The row of every position."""
        row = np.empty(len(self.by_row), dtype=np.int64)
        lengths = [len(positions) for positions in self.parts.grid.rows]
        row[self.by_row] = np.repeat(np.arange(len(lengths)), lengths)
        return row

    def _led(self, columns: list[int]) -> Ints:
        """Return the positions that the given columns serve, column by column."""
        return np.concatenate(
            [np.zeros(0, dtype=np.int64), *(self.parts.served[c] for c in columns)]
        )

    def _pairs(self, sources: Ints, dests: Ints) -> Ints:
        """Return the rows of regions of all pairs, shape (n_sources, n_dests)."""
        return np.asarray(sources[:, None] * self.parts.task.size + dests)

    def _begins(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Return the offsets of contiguous blocks of pairs, and their sizes, in elements."""
        sizes = self.given.totals[pairs]
        return csr.running_total(sizes.ravel())[:-1].reshape(sizes.shape), sizes

    def collected(self, row: int) -> tuple[Regions, Regions]:
        """Return the blocks that ranks of a row send to its leaders.

        Returns
        -------
        given, received : Regions
            Places of the blocks at the ranks and at the leaders, one row per pair of positions of
            the grid's row.
        """
        positions = self.parts.grid.rows[row]
        n, dests = len(positions), [self._led(some) for some in self.parts.grid.led_by[row]]
        lengths = np.tile([len(some) for some in dests], n)
        given = self.given.grouped(self._pairs(positions, np.concatenate(dests)).ravel(), lengths)
        totals = given.totals.reshape(n, n)
        low = np.cumsum(totals, axis=0) - totals
        return given, Regions.of(low.ravel(), totals.ravel())

    def exchanged(self, column: int, is_staged: Bools) -> tuple[Regions, Regions]:
        """Return the blocks that the leaders of a column exchange.

        Parameters
        ----------
        column : int
        is_staged : ndarray of bool, shape (n_rows,)
            Whether the leader of each row has collected blocks. Otherwise, it sends its own input.

        Returns
        -------
        given, received : Regions
            Places of the blocks at the sending and the receiving leader, one row per pair of rows.
        """
        if is_staged.all() and self.is_regular:
            return self._exchanged_alike(column)
        rows, n_rows = self.parts.grid.rows, self.parts.n_rows
        dests = self.parts.served[column]
        # A leader has collected blocks sorted by source. They are sent sorted by team.
        team, orders = self.row_of[dests], {}
        for n in {len(positions) for positions in rows}:
            orders[n] = np.argsort(np.tile(team, n), kind="stable")
        team_sizes = np.bincount(team, minlength=n_rows)
        sent, received = [], []
        for row, positions in enumerate(rows):
            order, lengths = orders[len(positions)], len(positions) * team_sizes
            pairs = self._pairs(positions, dests).ravel()[order]
            here = self._staged(row, column) if is_staged[row] else None
            one = self.given.grouped(pairs, lengths) if here is None else here.grouped(
                order, lengths)  # fmt: skip
            sent.append(one)
            received.append(self.received.grouped(pairs, lengths))
        given, final = Regions.stack(sent), Regions.stack(received)
        totals = given.totals.reshape(n_rows, n_rows)
        low = np.cumsum(totals, axis=0) - totals
        # A leader that serves only itself receives in place.
        serves_one = np.tile(team_sizes < 2, n_rows)
        number = np.arange(n_rows**2) + np.where(serves_one, 0, n_rows**2)
        both = Regions.stack([final, Regions.of(low.ravel(), totals.ravel())])
        return given, both.take(number)

    @cached_property
    def is_regular(self) -> bool:
        """True if all blocks have one size, all rows one length, and all teams one length."""
        rows, served = self.parts.grid.rows, self.parts.served
        are_tables = isinstance(self.given, PairTable) and isinstance(self.received, PairTable)
        if not are_tables or not self.parts.grid.is_even or len(rows[0]) % len(served):
            return False
        return self.parts.grid.n_columns <= len(rows[0]) and np.array_equal(
            self.by_row, np.arange(len(self.by_row))
        )

    def _exchanged_alike(self, column: int) -> tuple[Regions, Regions]:
        """Return the result of `exchanged` if all pairs of rows exchange equally many elements.

        The result is computed without a list of the pairs, whose number is that of rows squared.
        """
        grid, n_rows, served = self.parts.grid, self.parts.n_rows, self.parts.served[column]
        per_row, (block,) = len(grid.rows[0]), np.unique(self.given.totals[:1]).tolist()
        columns = grid.led_by[0][grid.place(0, column)]
        led, own = self._led(columns), len(served) // n_rows * block
        first = sum(len(self.parts.served[c]) for c in columns[: columns.index(column)]) * block
        n, size = n_rows**2, own * per_row
        given = PairTable(
            n, size, 1, n_rows, first=first, unit=own, turns=(len(led) * block, per_row)
        )
        return given, PairTable(n, size, n_rows, n_rows)

    def _staged(self, row: int, column: int) -> Regions:
        """Return the places, at a row's leader, of the blocks for the positions a column serves."""
        grid, served = self.parts.grid, self.parts.served
        columns = grid.led_by[row][grid.place(row, column)]
        begin, size = self._begins(self._pairs(grid.rows[row], self._led(columns)))
        first = sum(len(served[other]) for other in columns[: columns.index(column)])
        own = slice(first, first + len(served[column]))
        return Regions.of(begin[:, own].ravel(), size[:, own].ravel())

    def handed(self, team: Ints) -> tuple[Regions, Regions]:
        """Return the blocks that a leader hands out to its team.

        Parameters
        ----------
        team : ndarray of int64
            Positions of the team.

        Returns
        -------
        given, received : Regions
            Places of the blocks at the leader and at the team, one row per member.
        """
        pairs, n = self._pairs(self.by_row, team), np.full(len(team), len(self.by_row))
        begin, size = self._begins(pairs)
        staged = Regions.of(begin.T.ravel(), size.T.ravel())
        given = staged.grouped(np.arange(len(staged)), n)
        return given, self.received.grouped(pairs.T.ravel(), n)
