"""Balanced shares of a node's vector or blocks, in proportion to the rates of lanes.

If the number of lanes does not divide the ranks of a node, or if lanes have different rates, equal
shares would leave some lanes idle while others are still busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import cycle
from math import gcd, lcm

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.blueprint.locations import Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.grid import Grid
from collplan.planner.decompose.leaders import Parts


@dataclass(frozen=True, eq=False)
class BalancedGrid(Grid):
    """A grid in which every column has a lane, and a weight, which is its part of the lane's rate.

    The lanes of the columns are those of the longest row, counted from the root's place. In every
    other row, the leader of a column is on the lane of the column. If the row has no position on
    this lane, the leader is on the lane with the least load relative to its rate::

        lanes     0 1 2 0 1        weights 1 1 2 1 1, if all lanes have one rate
        row 0     0 1 2 3 4        5 ranks
        row 1     5 6 7 5 6        3 ranks: positions 5 and 6 lead two columns each

    Parameters
    ----------
    lane : ndarray of int64, shape (n_positions,)
        Lane of every position.
    rates : tuple of int
        Relative rates of the lanes.
    """

    lane: Ints
    rates: tuple[int, ...]

    @cached_property
    def column_lane(self) -> list[int]:
        """The lane of every column.

        If the row has more positions than columns, leaders are taken from the lanes in turn, and
        more of them from faster lanes.
        """
        longest = max(range(len(self.rows)), key=self._reference_order)
        lanes = self.lane[self.rows[longest]][self._turn(longest)].tolist()
        chosen = leading_order(lanes, self.rates)[: self.n_columns]
        return [lanes[i] for i in sorted(chosen)]

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Relative shares of the columns."""
        n_columns = {lane: self.column_lane.count(lane) for lane in set(self.column_lane)}
        whole = lcm(*n_columns.values())
        weights = [self.rates[lane] * whole // n_columns[lane] for lane in self.column_lane]
        return tuple(weight // gcd(*weights) for weight in weights)

    def likeness(self, row: int) -> Hashable:
        """Return the lanes of a row's positions, as a key for equal rows."""
        return self._likeness[row]

    def place(self, row: int, column: int) -> int:
        """Return the place of the leader of a column within a row."""
        return self._places[self.likeness(row)][column]

    @cached_property
    def _likeness(self) -> list[bytes]:
        return [self.lane[row].tobytes() for row in self.rows]

    @cached_property
    def _places(self) -> dict[Hashable, list[int]]:
        """The places of the leaders of all columns, by the likeness of rows."""
        first = {self.likeness(row): row for row in reversed(range(len(self.rows)))}
        return {likeness: self._deal(row) for likeness, row in first.items()}

    def _deal(self, row: int) -> list[int]:
        lanes = self.lane[self.rows[row]]
        turn = self._turn(row)
        there = {lane: cycle(turn[lanes[turn] == lane]) for lane in sorted(set(lanes.tolist()))}
        load = dict.fromkeys(there, 0)
        places = [-1] * self.n_columns
        # Columns whose lane exists in the row come first. The others add to the load of its lanes.
        for column in sorted(range(self.n_columns), key=lambda c: self.column_lane[c] not in there):
            lane, weight = self.column_lane[column], self.weights[column]
            if lane not in there:
                lane = min(there, key=lambda each: Fraction(load[each] + weight, self.rates[each]))
            load[lane] += weight
            places[column] = int(next(there[lane]))
        return places

    def _turn(self, row: int) -> Ints:
        """Return the places of a row, starting with the root's place."""
        n = len(self.rows[row])
        return np.asarray((self.shift + np.arange(n)) % n)

    def _reference_order(self, row: int) -> tuple[int, bool]:
        return len(self.rows[row]), row == self.root_row


@dataclass(eq=False)
class BalancedParts(Parts):
    """Parts whose columns have weighted shares of the vector, or of the joined blocks of a row."""

    def __post_init__(self) -> None:
        if self.task.traits.is_rooted and self.task.traits.has_blocks:
            self._serve_root_row()

    def _serve_root_row(self) -> None:
        """State the direct exchange between the root and its own row, without leaders."""
        task, members = self.task, self.grid.rows[self.grid.root_row]
        own = self.blocks_of_row(self.grid.root_row)
        self.inside(3, task.kind, members, self.grid.shift, task.input, task.output, own)
        if len(members) == 1:
            path = (*self.path, 3, 0)
            self.sketch.copy(path, self.roles[0], task.ranks[members], task.input, task.output, own)
        others = task.given.union([] if p in members else [p] for p in range(task.size))
        self.task = replace(task, given=others)

    def split_rows(self, rows: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the rows to state and those that repeat them.

        If the root serves its own row directly, all rows are stated.
        """
        is_like_others = not (self.task.traits.is_rooted and self.task.traits.has_blocks)
        return super().split_rows(rows) if is_like_others else (list(rows), [])

    def split_columns(self) -> tuple[list[int], list[int]]:
        """Return all columns as columns to state, because their shares differ."""
        return list(self.columns), []

    @cached_property
    def shares(self) -> Regions:
        """The share of the vector of every column, one row per column."""
        return self.task.given.cut(self.grid.n_columns, self.grid.weights)

    def blocks_led(self, row: int) -> Regions:
        """Return the parts of blocks that pass through each position of a row, one row each.

        A position that leads no column has an empty row.
        """
        m, rows = self.grid.n_columns, range(self.n_rows)
        lists = [[r * m + c for c in some for r in rows] for some in self.grid.led_by[row]]
        return self._row_shares.union(lists).merged()

    def blocks_by_row(self, column: int) -> Regions:
        """Return the parts of blocks that pass through a column, one row per row of the grid."""
        return self._row_shares.take(np.arange(self.n_rows) * self.grid.n_columns + column)

    def teams(self) -> list[tuple[int, Ints]]:
        """Return the teams with more than one position.

        Returns
        -------
        list of (int, ndarray of int64)
            Position of a leader, and its team in ascending order: the leader itself, and all
            positions whose blocks pass through it in part.
        """
        found = []
        for row in self.split_rows(range(self.n_rows))[0]:
            position, column, _ = self._pieces[row]
            for place, columns in enumerate(self.grid.led_by[row]):
                leader = int(self.grid.rows[row][place])
                team = np.union1d(position[np.isin(column, columns)], [leader])
                if columns and len(team) > 1:
                    found.append((leader, team))
        return found

    def team_blocks(self, leader: int, positions: Ints) -> Regions:
        """Return the parts of blocks that pass through a leader, one row per team position."""
        row = int(self._row_of[leader])
        position, column, pieces = self._pieces[row]
        is_led = np.isin(column, self.grid.led_by[row][self._place_of[leader]])
        return pieces.union(np.flatnonzero(is_led & (position == each)) for each in positions)

    def from_leaders(self, phase: int, here: Home) -> Home:
        """State an exchange of parts of blocks between leaders and their teams, in every row.

        This is an alltoall, because a rank receives from several leaders. With scatters, it would
        have to stage the data that it forwards from each of them.

        Parameters
        ----------
        phase : int
            Number of the phase.
        here : Home
            Place of the blocks at leaders.

        Returns
        -------
        Home
            Place of the blocks at all ranks afterwards.
        """
        task, done = self.task, np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        stage = self.sketch.scratch((*self.path, -1, 2), task.ranks)
        # A leader of only itself sends nothing that received blocks could overwrite.
        source = stage.where(self.leads_itself() & ~here.differs(task.output), here)
        for row in self.split_rows(range(self.n_rows))[0]:
            position, column, pieces = self._pieces[row]
            members = self.grid.rows[row]
            leaders = np.array([self.grid.leader(row, c) for c in self.columns])[column]
            moved = (leaders != position) | here.differs(task.output)[task.ranks[leaders]]
            pair = self._place_of[leaders] * len(members) + self._place_of[position]
            order = np.argsort(np.where(moved, pair, len(members) ** 2), kind="stable")
            ends = np.cumsum(np.bincount(pair[moved], minlength=len(members) ** 2))
            given = pieces.union(np.split(order, ends)[:-1]).merged()
            done |= self.inside(phase, "alltoall", members, 0, source, task.output, given, given)
        self.repeat(done, range(self.n_rows))
        return task.output.where(done, here)

    @cached_property
    def _row_of(self) -> Ints:
        """The row of every position."""
        row = np.empty(self.task.size, dtype=np.int64)
        for number, positions in enumerate(self.grid.rows):
            row[positions] = number
        return row

    @cached_property
    def _place_of(self) -> Ints:
        """The place of every position within its row."""
        place = np.empty(self.task.size, dtype=np.int64)
        for positions in self.grid.rows:
            place[positions] = np.arange(len(positions))
        return place

    @cached_property
    def _row_shares(self) -> Regions:
        """The share of every column of the blocks of every row, row by row."""
        shares = []
        for _, column, pieces in self._pieces:
            shares.append(pieces.union(np.flatnonzero(column == c) for c in self.columns).merged())
        return Regions.stack(shares)

    @cached_property
    def _pieces(self) -> list[tuple[Ints, Ints, Regions]]:
        """The position, column and region of every piece, for every row.

        Pieces are the parts of a row's blocks after cuts at the ends of shares.
        """
        return [self._cut_blocks(self._in_turn(row)) for row in range(self.n_rows)]

    def _in_turn(self, row: int) -> Ints:
        """Return the positions of a row, sorted by the column that would serve whole blocks."""
        return np.concatenate([self.grid.followers(row, column) for column in self.columns])

    def _cut_blocks(self, positions: Ints) -> tuple[Ints, Ints, Regions]:
        joined = self.task.given.union([positions])
        starts = csr.running_total(self.task.given.totals[positions])
        bounds = csr.running_total(joined.cut(self.grid.n_columns, self.grid.weights).totals)
        edges = csr.sorted_unique(np.concatenate((starts, bounds)))
        begin = edges[:-1]
        position = positions[last_at_or_below(starts[:-1], begin)]
        return position, last_at_or_below(bounds[:-1], begin), joined.into(np.diff(edges)[None])


def leading_order(lanes: Sequence[int], rates: Sequence[int]) -> list[int]:
    """Return the order in which ranks become leaders.

    Lanes are used in turn, and faster lanes more often.

    Parameters
    ----------
    lanes : sequence of int
        Lane of every rank.
    rates : sequence of int
        Relative rates of the lanes.

    Returns
    -------
    list of int
        Indices of the ranks.

    Examples
    --------
    >>> leading_order([0, 0, 1, 1], (1, 1)), leading_order([0, 0, 1, 1], (2, 1))
    ([0, 2, 1, 3], [0, 2, 1, 3])
    """
    n_before: Counter[int] = Counter()
    turn = []
    for lane in lanes:
        turn.append(Fraction(n_before[lane], rates[lane]))
        n_before[lane] += 1
    return sorted(range(len(lanes)), key=lambda i: turn[i])


def like_leaders(lanes: Sequence[int], rates: Sequence[int]) -> list[int]:
    """Return the numbers of leaders with which all leaders have equal shares.

    Parameters
    ----------
    lanes : sequence of int
        Lane of every rank, of which the first ones in `leading_order` are leaders.
    rates : sequence of int
        Relative rates of the lanes.

    Returns
    -------
    list of int
        Numbers of leaders that are on all lanes, and in proportion to the rates.

    Examples
    --------
    >>> like_leaders([0, 1, 0, 1, 0], (1, 1)), like_leaders([0, 1, 0, 1], (2, 1))
    ([2, 4], [3])
    """
    used, found = set(lanes), []
    n_on: Counter[int] = Counter()
    for n, i in enumerate(leading_order(lanes, rates), start=1):
        n_on[lanes[i]] += 1
        if n >= len(used) and len({Fraction(n_on[lane], rates[lane]) for lane in used}) == 1:
            found.append(n)
    return found
