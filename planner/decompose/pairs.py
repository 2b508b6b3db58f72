"""Alltoall through leaders: what every pair of ranks exchanges, on its way.

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
    """Collect on nodes by the column of the destination, exchange along columns, hand out.

    In between, blocks lie by source, then by destination: so they arrive in one piece
    wherever they are staged, and only what is sent on is taken out of several.
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
    """Places of an alltoall's blocks on their way through leaders."""

    parts: Parts

    @property
    def given(self) -> Regions:
        """The contribution of ranks, one row per pair."""
        return self.parts.task.given

    @property
    def received(self) -> Regions:
        """The result of ranks, one row per pair."""
        assert self.parts.task.received is not None
        return self.parts.task.received

    @cached_property
    def by_row(self) -> Ints:
        """All positions, row by row: the order in which leaders keep what they hand out."""
        return np.concatenate(self.parts.grid.rows)

    @cached_property
    def row_of(self) -> Ints:
        """The row of every position."""
        row = np.empty(len(self.by_row), dtype=np.int64)
        lengths = [len(positions) for positions in self.parts.grid.rows]
        row[self.by_row] = np.repeat(np.arange(len(lengths)), lengths)
        return row

    def _led(self, columns: list[int]) -> Ints:
        """Return the positions that a leader of the given columns collects for."""
        return np.concatenate(
            [np.zeros(0, dtype=np.int64), *(self.parts.served[c] for c in columns)]
        )

    def _pairs(self, sources: Ints, dests: Ints) -> Ints:
        """Return the rows of pairs, shape (n_sources, n_dests)."""
        return np.asarray(sources[:, None] * self.parts.task.size + dests)

    def _begins(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Return where the blocks of pairs begin that lie one after another, and their sizes."""
        sizes = self.given.totals[pairs]
        return csr.running_total(sizes.ravel())[:-1].reshape(sizes.shape), sizes

    def collected(self, row: int) -> tuple[Regions, Regions]:
        """Return what ranks of a row send its leaders, and where these put it."""
        positions = self.parts.grid.rows[row]
        n, dests = len(positions), [self._led(some) for some in self.parts.grid.led_by[row]]
        lengths = np.tile([len(some) for some in dests], n)
        given = self.given.grouped(self._pairs(positions, np.concatenate(dests)).ravel(), lengths)
        totals = given.totals.reshape(n, n)
        low = np.cumsum(totals, axis=0) - totals
        return given, Regions.of(low.ravel(), totals.ravel())

    def exchanged(self, column: int, is_staged: Bools) -> tuple[Regions, Regions]:
        """Return what the leaders of a column send each other, and where these put it.

        `is_staged` marks the rows whose leaders have collected what they send.
        """
        if is_staged.all() and self.is_regular:
            return self._exchanged_alike(column)
        rows, n_rows = self.parts.grid.rows, self.parts.n_rows
        dests = self.parts.served[column]
        # A row has a team's blocks source by source; sent they are team by team.
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
        # Who serves nobody else receives in place.
        serves_one = np.tile(team_sizes < 2, n_rows)
        number = np.arange(n_rows**2) + np.where(serves_one, 0, n_rows**2)
        both = Regions.stack([final, Regions.of(low.ravel(), totals.ravel())])
        return given, both.take(number)

    @cached_property
    def is_regular(self) -> bool:
        """True if blocks are of one size, and all rows and their teams are of one length."""
        rows, served = self.parts.grid.rows, self.parts.served
        are_tables = isinstance(self.given, PairTable) and isinstance(self.received, PairTable)
        if not are_tables or not self.parts.grid.is_even or len(rows[0]) % len(served):
            return False
        return self.parts.grid.n_columns <= len(rows[0]) and np.array_equal(
            self.by_row, np.arange(len(self.by_row))
        )

    def _exchanged_alike(self, column: int) -> tuple[Regions, Regions]:
        """Return what `exchanged` does where all pairs of rows exchange the same.

        There are as many pairs as rows squared: none of them is listed.
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
        """Return where a row's blocks for all whom a column serves lie at its leader there."""
        grid, served = self.parts.grid, self.parts.served
        columns = grid.led_by[row][grid.place(row, column)]
        begin, size = self._begins(self._pairs(grid.rows[row], self._led(columns)))
        first = sum(len(served[other]) for other in columns[: columns.index(column)])
        own = slice(first, first + len(served[column]))
        return Regions.of(begin[:, own].ravel(), size[:, own].ravel())

    def handed(self, team: Ints) -> tuple[Regions, Regions]:
        """Return what a leader has for each of its team, and where it belongs."""
        pairs, n = self._pairs(self.by_row, team), np.full(len(team), len(self.by_row))
        begin, size = self._begins(pairs)
        staged = Regions.of(begin.T.ravel(), size.T.ravel())
        given = staged.grouped(np.arange(len(staged)), n)
        return given, self.received.grouped(pairs.T.ravel(), n)
