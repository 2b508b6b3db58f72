"""Reduce through leaders with a gather: the root combines the vectors of its own node.

This is the second decomposition by Träff and Hunold. On the root's node, a gather and local
reductions replace the reduce_scatter. The vectors of this node need not wait and arrive at the root
before the results of other nodes, but the root receives all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.blueprint.locations import Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.leaders import Parts, settle


def reduce(parts: Parts) -> None:
    """Reduce-scatter on other nodes, reduce along columns, gather at the root and combine."""
    rows = [row for row in range(parts.n_rows) if row != parts.grid.root_row]
    output, shares = parts.task.output, parts.shares_of_row
    here = parts.in_rows(0, "reduce_scatter_block", parts.task.input, output, shares, rows=rows)
    if parts.is_commutative and rows:
        _reduce_in_any_order(parts, here)
    else:
        _reduce_in_order(parts, here)


def _reduce_in_any_order(parts: Parts, here: Home) -> None:
    """Reduce shares of all rows along columns; at the root, combine the remaining ones.

    A rank of the root's row takes part in the columns that it leads, and sends the other shares
    of its vector to the root. While the columns reduce, the root adds these shares to its own in
    the slot of the first such rank.
    """
    task, grid = parts.task, parts.grid
    led, (root_row, root) = grid.led_by[grid.root_row], (grid.root_row, grid.shift)
    left = [sorted(set(parts.columns) - set(columns)) for columns in led]
    others = [place for place in range(len(led)) if place != root]
    slots = _gather_vectors(parts, [[] if p == root else some for p, some in enumerate(left)])
    if others:
        first, total = others[0], slots[others[0]]
        there = task.input, total
        at_root = parts.roles[0], task.ranks[[task.root]]
        both = set(left[root]) & set(left[first])
        missing, common = (_joined(parts, columns) for columns in (led[first], both))
        parts.sketch.copy((*parts.path, 1, 0), *at_root, *there, missing)
        parts.sketch.reduce((*parts.path, 1, 1), *at_root, *there, common)
        for place in others[1:]:
            path, given = (*parts.path, 1, place + 2), _joined(parts, left[place])
            parts.sketch.reduce(path, *at_root, slots[place], total, given)
    here = parts.in_columns(2, "reduce", here, task.output, parts.share)
    ends = here, task.output, parts.shares_of_row
    parts.in_rows(3, "gather", *ends, rows=[root_row], root=root)
    for place in range(len(led)) if others else ():
        # Each share has a reduction of its own, which can run as soon as the share has arrived.
        path, given = (*parts.path, 4, place), _joined(parts, led[place])
        parts.sketch.reduce(path, *at_root, total, task.output, given)


def _reduce_in_order(parts: Parts, here: Home) -> None:
    """Reduce the rows before and after the root's row separately, and combine all in order."""
    task, grid, root_row = parts.task, parts.grid, parts.grid.root_row
    vectors = _gather_vectors(
        parts, [[] if p == grid.shift else parts.columns for p in range(len(grid.rows[root_row]))]
    )
    vectors[grid.shift] = task.input
    if root_row > 0:
        vectors.insert(0, _from_side(parts, np.arange(root_row), root_row - 1, here))
    if root_row + 1 < parts.n_rows:
        vectors.append(_from_side(parts, np.arange(root_row + 1, parts.n_rows), 0, here))
    root, total = np.array([task.root]), vectors.pop()
    at_root = parts.roles[0], task.ranks[root]
    if total is task.input:
        settle(parts, 4, root, total)
        total = task.output
    for i, vector in enumerate(reversed(vectors)):
        parts.sketch.reduce((*parts.path, 5, i), *at_root, vector, total, task.given)
    settle(parts, 6, root, total)


def _from_side(parts: Parts, rows: Ints, nearest: int, here: Home) -> Home:
    """Bring the sum of the rows on one side of the root's row to the root; return its location.

    Along columns, shares are reduced to the row next to the root's row, which sends them on.
    """
    task, grid, sketch = parts.task, parts.grid, parts.sketch
    sums, side = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    stated, _ = parts.split_columns()
    done = np.zeros(sketch.n_ranks, dtype=np.bool_)
    for column in stated:
        ends = here, sums, parts.share(column)
        done |= parts.along(1, "reduce", grid.column(column)[rows], nearest, *ends)
    here = sums.where(done, here)
    # Receivers use `side` in place of an input, so that the scatter does not access their inputs.
    here = side.where(
        np.isin(np.arange(sketch.n_ranks), task.ranks[grid.rows[grid.root_row]]), here
    )
    nothing = Regions.of(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    for column in stated:
        pair = grid.column(column)[[rows[nearest], grid.root_row]]
        parts.along(
            2, "scatter", pair, 0, here, side, Regions.stack([nothing, parts.share(column)])
        )
    parts.in_rows(
        3, "gather", side, side, parts.shares_of_row, rows=[grid.root_row], root=grid.shift
    )
    return side


def _gather_vectors(parts: Parts, columns: list[Iterable[int]]) -> list[Home]:
    """Gather shares of some columns from each rank of the root's row; return the root's slots."""
    task, grid = parts.task, parts.grid
    slots = parts.sketch.scratch((*parts.path, -1, 2), task.ranks)
    room = int((task.given.low + task.given.count).max(initial=0))
    given = parts.shares.union([list(some) for some in columns]).merged()
    kept = Regions.stack(
        [given.take(np.array([place])).shifted(place * room) for place in range(len(given))]
    )
    members = grid.rows[grid.root_row]
    parts.inside(0, "gather", members, grid.shift, task.input, slots, given, kept)
    return [slots.shifted(place * room) for place in range(len(given))]


def _joined(parts: Parts, columns: Iterable[int]) -> Regions:
    """Return the shares of some columns as one row."""
    return parts.shares.union([sorted(columns)]).merged()


FORMS = {"reduce": reduce}
"""Collectives that have this decomposition."""
