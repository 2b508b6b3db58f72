"""Collectives through leaders: inside nodes, then along columns across nodes, then inside nodes.

With one leader per node this is the hierarchical form of a collective. If all ranks are leaders, it
is the full-lane form, in which every column is a virtual lane that carries its share of the vector,
or the blocks of its ranks.

References
----------
Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane
communication", CLUSTER 2020: listings 1 to 6 are the full-lane forms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.blueprint.blueprint import GroupTask, Path, Sketch
from collplan.planner.blueprint.locations import Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.grid import Grid

Inner = Callable[[Path, GroupTask], Bools]
"""Function that states a task of a part and marks the ranks with the result in its output."""
Ranks = Callable[[list[int]], Ints]
"""Function that returns the ranks of rows, or of columns, of a grid: an array row for each."""
Given = Callable[[int], Regions]
"""Function that returns what moves in a row or column of a grid."""


@dataclass(eq=False)
class Parts:
    """A task with its grid, and the functions that state its parts.

    Parameters
    ----------
    sketch : Sketch
    task : GroupTask
    grid : Grid
    path : tuple of int
        Phase to which all parts belong.
    inner, outer : callable
        Functions that state collectives inside rows, and along columns.
    roles : (str, str)
        Roles of collectives inside rows, and along columns.
    is_commutative : bool
        Whether operands may be exchanged.
    is_nested : bool
        Whether the task is part of another one, or its rows are decomposed further. In both
        cases no group may be left out.
    """

    sketch: Sketch
    task: GroupTask
    grid: Grid
    path: Path
    inner: Inner
    outer: Inner
    roles: tuple[str, str]
    is_commutative: bool
    is_nested: bool

    def inside(self, phase: int, kind: str, positions: Ints, root: int, *ends: Any) -> Bools:
        """State a collective on some positions of a row; `ends` are the last fields of its task."""
        task = GroupTask(kind, self.roles[0], self.task.ranks[positions], root, *ends)
        return self.inner((*self.path, phase, 0), task)

    def along(self, phase: int, kind: str, positions: Ints, root: int, *ends: Any) -> Bools:
        """State a collective on positions of several rows, like `inside` on those of one row."""
        task = GroupTask(kind, self.roles[1], self.task.ranks[positions], root, *ends)
        return self.outer((*self.path, phase, 0), task)

    def in_rows(
        self,
        phase: int,
        kind: str,
        input: Home,
        output: Home,
        given: Given,
        *,
        rows: Iterable[int] | None = None,
        root: int = 0,
    ) -> Home:
        """State a collective inside rows, by default all; return the locations of its results.

        `given` returns the data that move in a row.
        """
        done = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        rows = range(self.n_rows) if rows is None else rows
        for row in self.split_rows(rows)[0]:
            ends = input, output, given(row)
            done |= self.inside(phase, kind, self.grid.rows[row], root, *ends)
        self.repeat(done, rows)
        return output.where(done, input)

    def repeat(self, marks: Bools, rows: Iterable[int]) -> None:
        """Give the ranks of rows that are left out the results of the first stated row."""
        self._repeat(marks, *self.split_rows(rows), self._ranks_of_rows)

    def _repeat(self, marks: Bools, stated: list[int], others: list[int], ranks_of: Ranks) -> None:
        if others:
            marks[ranks_of(others)] = marks[ranks_of(stated[:1])]

    def _ranks_of_rows(self, rows: list[int]) -> Ints:
        return self.task.ranks[self.grid.matrix[rows]]

    def _ranks_of_columns(self, columns: list[int]) -> Ints:
        return self.task.ranks[np.stack([self.grid.column(column) for column in columns])]

    def split_rows(self, rows: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the rows to state, and similar rows that may be left out."""
        return self._split(list(rows), self._ranks_of_rows)

    def split_columns(self) -> tuple[list[int], list[int]]:
        """Return the columns to state, and similar columns that may be left out."""
        columns = list(self.columns)
        is_cut = self.task.traits.has_data and not self.task.traits.has_blocks
        if is_cut and self.task.given.totals.min() < len(columns):
            return columns, []  # some have no share of the vector
        return self._split(columns, self._ranks_of_columns)

    def _split(self, numbers: list[int], ranks_of: Ranks) -> tuple[list[int], list[int]]:
        """Return the rows or columns of wanted ranks, at least one, and the other ones."""
        if self.sketch.only is None or self.is_nested or not self.grid.is_even or not numbers:
            return numbers, []
        is_stated = self.sketch.is_wanted(ranks_of(numbers))
        stated, others = np.array(numbers)[is_stated], np.array(numbers)[~is_stated]
        return stated.tolist(), others.tolist()

    def in_columns(
        self,
        phase: int,
        kind: str,
        input: Home,
        output: Home,
        given: Given,
    ) -> Home:
        """State a collective along every column; return the locations of its results.

        `given` returns the data that move in a column.
        """
        done = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        stated, others = self.split_columns()
        for column in stated:
            ends = input, output, given(column)
            done |= self.along(phase, kind, self.grid.column(column), self.grid.root_row, *ends)
        self._repeat(done, stated, others, self._ranks_of_columns)
        return output.where(done, input)

    def whole(self, part: int) -> Regions:
        """Return all data that the task moves, for any row or column."""
        return self.task.given

    def whole_of(self, ranks: Ints) -> Regions:
        """Return the whole vector, with one row per rank."""
        return self.task.given.take(np.zeros(len(ranks), dtype=np.int64))

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.grid.rows)

    @property
    def columns(self) -> range:
        """Return the numbers of the columns."""
        return range(self.grid.n_columns)

    @cached_property
    def shares(self) -> Regions:
        """Share of the vector for every column."""
        return self.task.given.cut(self.grid.n_columns)

    def share(self, column: int) -> Regions:
        """Return the share of a column."""
        return self.shares.take(np.array([column]))

    def shares_of_row(self, row: int) -> Regions:
        """Return the shares of each position of a row; similar rows have the same object."""
        alike = self.grid.likeness(row)
        if alike not in self._shares_of_alike:
            self._shares_of_alike[alike] = self.shares.union(self.grid.led_by[row])
        return self._shares_of_alike[alike]

    @cached_property
    def _shares_of_alike(self) -> dict[Hashable, Regions]:
        """Shares of rows, by the keys of `Grid.likeness`."""
        return {}

    def blocks_of_row(self, row: int) -> Regions:
        """Return the blocks of a row's positions."""
        return self.task.given.take(self.grid.rows[row])

    def blocks_led(self, row: int) -> Regions:
        """Return the blocks that each position of a row handles for the columns that it leads."""
        led = self.grid.led_by[row]
        nobody = np.zeros(0, dtype=np.int64)
        lists = [np.concatenate([nobody, *(self.served[c] for c in columns)]) for columns in led]
        return self.task.given.union(lists)

    @cached_property
    def served(self) -> list[Ints]:
        """Positions that each column serves, row by row."""
        return [np.concatenate(self.grid.followers_by_row(column)) for column in self.columns]

    def blocks_by_row(self, column: int) -> Regions:
        """Return the blocks that a column serves in each row of the grid."""
        return self.task.given.union(self.grid.followers_by_row(column))

    def teams(self) -> list[tuple[int, Ints]]:
        """Return the leader and the followers of each leader that serves several positions.

        Teams in rows that are left out are missing.
        """
        if self.grid.is_even and self.grid.n_columns >= len(self.grid.rows[0]):
            return []
        places = product(self.split_rows(range(self.n_rows))[0], self.columns)
        found = ((self.grid.leader(*place), self.grid.followers(*place)) for place in places)
        return [each for each in found if len(each[1]) > 1]

    def team_blocks(self, leader: int, positions: Ints) -> Regions:
        """Return the blocks of a team that its leader handles, with one row per position."""
        return self.task.given.take(positions)

    def in_team(self, phase: int, kind: str, leader: int, positions: Ints, *ends: Any) -> Bools:
        """State a gather to the leader of some positions of a row, or a scatter from it."""
        root = int(np.flatnonzero(positions == leader)[0])
        return self.inside(phase, kind, positions, root, *ends)

    def to_leaders(self, phase: int) -> Home:
        """Gather the blocks of teams to their leaders; return the locations of the blocks."""
        task = self.task
        collects = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        for leader, team in self.teams():
            given = self.team_blocks(leader, team)
            done = self.in_team(phase, "gather", leader, team, task.input, task.output, given)
            collects[task.ranks[leader]] = done[task.ranks[leader]]
        self.repeat(collects, range(self.n_rows))
        return task.output.where(collects, task.input)

    def from_leaders(self, phase: int, here: Home) -> Home:
        """Scatter the blocks of teams from their leaders; return the locations of the blocks."""
        task = self.task
        done = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        for leader, team in self.teams():
            given = self.team_blocks(leader, team)
            done |= self.in_team(phase, "scatter", leader, team, here, task.output, given)
        self.repeat(done, range(self.n_rows))
        return task.output.where(done, here)

    def leads_itself(self) -> Bools:
        """Mark the leaders that serve only themselves."""
        alone = np.zeros(self.sketch.n_ranks, dtype=np.bool_)
        for column in self.columns:
            alone[self.task.ranks[self.grid.column(column)]] = True
        for leader, _ in self.teams():
            alone[self.task.ranks[leader]] = False
        self.repeat(alone, range(self.n_rows))
        return alone


def bcast(parts: Parts) -> None:
    """Scatter on the root's node, bcast shares along columns, allgather on nodes."""
    grid, home, shares = parts.grid, parts.task.output, parts.shares_of_row
    parts.in_rows(0, "scatter", home, home, shares, rows=[grid.root_row], root=grid.shift)
    parts.in_columns(1, "bcast", home, home, parts.share)
    parts.in_rows(2, "allgather", home, home, shares)


def reduce(parts: Parts) -> None:
    """Reduce-scatter on nodes, reduce shares along columns, gather on the root's node."""
    task, grid, output, shares = parts.task, parts.grid, parts.task.output, parts.shares_of_row
    here = parts.in_rows(0, "reduce_scatter_block", task.input, output, shares)
    here = parts.in_columns(1, "reduce", here, output, parts.share)
    here = parts.in_rows(2, "gather", here, output, shares, rows=[grid.root_row], root=grid.shift)
    settle(parts, 3, np.array([task.root]), here)


def allreduce(parts: Parts) -> None:
    """Reduce-scatter on nodes, allreduce shares along columns, allgather on nodes."""
    task, output = parts.task, parts.task.output
    here = parts.in_rows(0, "reduce_scatter_block", task.input, output, parts.shares_of_row)
    here = parts.in_columns(1, "allreduce", here, output, parts.share)
    here = parts.in_rows(2, "allgather", here, output, parts.shares_of_row)
    settle(parts, 3, np.arange(task.size), here)


def scan(parts: Parts) -> None:
    """Scan or exscan on nodes; the sums of the nodes before come through the columns.

    Reduce-scatter on nodes, exscan shares along columns, allgather on nodes,
    combine with the node's own scan.
    """
    task, sketch = parts.task, parts.sketch
    sums, before = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    if parts.n_rows > 1:
        here = parts.in_rows(0, "reduce_scatter_block", task.input, sums, parts.shares_of_row)
        parts.in_columns(1, "exscan", here, before, parts.share)
    here = parts.in_rows(2, task.kind, task.input, task.output, parts.whole)
    if task.kind != "exscan":
        settle(parts, 3, np.arange(task.size), here)
    later = range(1, parts.n_rows)
    parts.in_rows(4, "allgather", before, before, parts.shares_of_row, rows=later)
    combine_before(parts, 5, before)


def combine_before(parts: Parts, phase: int, before: Home) -> None:
    """Combine what comes from the rows before with the scan inside each row but the first.

    Of an exscan, a row's first rank has what comes from the rows before only.
    """
    task, sketch = parts.task, parts.sketch
    n_first = int(task.kind == "exscan")
    for row in parts.split_rows(range(1, parts.n_rows))[0]:
        ranks = task.ranks[parts.grid.rows[row]]
        for some, state in ((ranks[:n_first], sketch.copy), (ranks[n_first:], sketch.reduce)):
            given = parts.whole_of(some)
            state((*parts.path, phase, 0), parts.roles[0], some, before, task.output, given)


def gather(parts: Parts) -> None:
    """Gather to leaders, along columns to the root's node, and there to the root."""
    task, grid, output = parts.task, parts.grid, parts.task.output
    here = parts.to_leaders(0)
    here = parts.in_columns(1, "gather", here, output, parts.blocks_by_row)
    here = parts.in_rows(
        2, "gather", here, output, parts.blocks_led, rows=[grid.root_row], root=grid.shift
    )
    settle(parts, 3, np.array([task.root]), here)


def scatter(parts: Parts) -> None:
    """Scatter on the root's node, along columns, and from leaders to those they serve."""
    task, grid = parts.task, parts.grid
    row, is_single = grid.root_row, parts.n_rows == 1
    middle = task.output.where(parts.leads_itself(), task.input)
    blocks = parts.blocks_led(row)
    target = middle if is_single else task.input
    members = grid.rows[row]
    done = parts.inside(0, "scatter", members, grid.shift, task.input, target, blocks)
    here = target.where(done, task.input)
    for column in parts.columns:
        ends = grid.column(column), row, here, middle, parts.blocks_by_row(column)
        done |= parts.along(1, "scatter", *ends)
    here = middle.where(done, task.input)
    here = parts.from_leaders(2, here)
    settle(parts, 3, np.array([task.root]), here)


def allgather(parts: Parts) -> None:
    """Gather to leaders, allgather along columns, then on nodes what each leader has."""
    output = parts.task.output
    here = parts.to_leaders(0)
    here = parts.in_columns(1, "allgather", here, output, parts.blocks_by_row)
    here = parts.in_rows(2, "allgather", here, output, parts.blocks_led)
    settle(parts, 3, np.arange(parts.task.size), here)


def reduce_scatter_block(parts: Parts) -> None:
    """Reduce-scatter on nodes by column, along columns by node, scatter from leaders."""
    task, sketch, kind = parts.task, parts.sketch, "reduce_scatter_block"
    stage, handed = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    middle = task.output.where(parts.leads_itself(), handed)
    target = stage if parts.n_rows > 1 else middle
    here = parts.in_rows(0, kind, task.input, target, parts.blocks_led)
    here = parts.in_columns(1, kind, here, middle, parts.blocks_by_row)
    settle(parts, 3, np.arange(task.size), parts.from_leaders(2, here))


def barrier(parts: Parts) -> None:
    """Barriers on nodes, then along columns, then again on nodes where some do not lead."""
    task, columns = parts.task, parts.columns
    ends = task.input, task.output, parts.whole
    parts.in_rows(0, "barrier", *ends)
    parts.in_columns(1, "barrier", *ends)
    waiting = [row for row in range(parts.n_rows) if len(parts.grid.rows[row]) > len(columns)]
    parts.in_rows(2, "barrier", *ends, rows=waiting)


def settle(parts: Parts, phase: int, positions: Ints, here: Home) -> None:
    """Copy results that nothing has moved yet to where they belong."""
    task = parts.task
    given = task.given.take(positions) if task.traits.has_blocks else parts.whole_of(positions)
    ranks, path = task.ranks[positions], (*parts.path, phase, 0)
    parts.sketch.copy(path, parts.roles[0], ranks, here, task.output, given)


FORMS: dict[str, Callable[[Parts], None]] = {
    "bcast": bcast,
    "reduce": reduce,
    "allreduce": allreduce,
    "scan": scan,
    "exscan": scan,
    "gather": gather,
    "scatter": scatter,
    "allgather": allgather,
    "reduce_scatter_block": reduce_scatter_block,
    "barrier": barrier,
}
"""The form of every collective, by kind; alltoall's is in a file of its own."""
