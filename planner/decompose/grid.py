"""A group as a grid: rows (nodes) whose leaders form columns (virtual lanes)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.blueprint.groups import Rows


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of positions, and the columns that their leaders form.

    Leader j of every row is its j-th position, counted from the root's place in its row, so that
    the root is a leader. If a row has fewer positions than there are columns, leaders wrap around,
    and a position leads several columns::

        columns   0 1 2
        row 0     0 1 2      3 ranks
        row 1     3 4 3      2 ranks: position 3 leads columns 0 and 2

    Parameters
    ----------
    rows : list of ndarray
        Positions of every row, in order.
    n_columns : int
        Number of columns, which is that of leaders per row.
    root : int
        Position of the root; 0 if there is none.
    """

    rows: Rows
    n_columns: int
    root: int

    @cached_property
    def root_row(self) -> int:
        """Row that contains the root."""
        return next(i for i, row in enumerate(self.rows) if self.root in row)

    @cached_property
    def shift(self) -> int:
        """Place of the root in its row."""
        return int(np.flatnonzero(self.rows[self.root_row] == self.root)[0])

    @property
    def weights(self) -> tuple[int, ...] | None:
        """Relative shares of the columns; None if all are equal."""
        return None

    def likeness(self, row: int) -> Hashable:
        """Return a key that is equal for rows whose leaders have the same places."""
        return len(self.rows[row])

    @cached_property
    def is_even(self) -> bool:
        """Return whether all rows have the same length, and their leaders the same places."""
        return len({self.likeness(row) for row in range(len(self.rows))}) == 1

    @cached_property
    def matrix(self) -> Ints:
        """Positions of all rows, which have the same length, shape (n_rows, length)."""
        return np.stack(self.rows)

    def leader(self, row: int, column: int) -> int:
        """Return the position that leads `column` on `row`."""
        return int(self.rows[row][self.place(row, column)])

    def place(self, row: int, column: int) -> int:
        """Return the place of a column's leader in its row."""
        return (self.shift + column) % len(self.rows[row])

    def column(self, column: int) -> Ints:
        """Return the leaders of `column`, row by row."""
        if self.is_even:
            return np.asarray(self.matrix[:, self.place(0, column)])
        return np.array([self.leader(row, column) for row in range(len(self.rows))])

    @cached_property
    def led_by(self) -> list[list[list[int]]]:
        """Columns that each position leads, row by row."""
        alike: dict[Hashable, list[list[int]]] = {}
        for row, positions in enumerate(self.rows):
            if self.likeness(row) not in alike:
                columns: list[list[int]] = [[] for _ in positions]
                for column in range(self.n_columns):
                    columns[self.place(row, column)].append(column)
                alike[self.likeness(row)] = columns
        return [alike[self.likeness(row)] for row in range(len(self.rows))]

    def followers(self, row: int, column: int) -> Ints:
        """Return the positions of `row` that `column` serves, including its leader.

        The positions of a row are assigned to its leaders in turn. Columns beyond the length of
        the row serve no position there.
        """
        positions = self.rows[row]
        places = self._served.get((len(positions), column))
        return positions[:0] if places is None else positions[places]

    def followers_by_row(self, column: int) -> list[Ints]:
        """Return the positions that a column serves, row by row."""
        places = self._served.get((len(self.rows[0]), column))
        if self.is_even and places is not None:
            return list(self.matrix[:, places])
        return [self.followers(row, column) for row in range(len(self.rows))]

    @cached_property
    def _served(self) -> dict[tuple[int, int], Ints]:
        """Places in a row that a column serves, by the length of the row and the column."""
        served: dict[tuple[int, int], Ints] = {}
        for length in {len(positions) for positions in self.rows}:
            n_leaders = min(self.n_columns, length)
            turn = (np.arange(length) - self.shift) % length
            for column in range(n_leaders):
                served[length, column] = np.flatnonzero(turn % n_leaders == column)
        return served
