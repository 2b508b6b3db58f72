"""Collectives over a mesh, with a phase per dimension for all rows or all columns together.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", IPDPS 2006: orthogonal groups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collplan.planner.decompose import leaders, neighbors, pairs
from collplan.planner.decompose.leaders import Parts


def allreduce(parts: Parts) -> None:
    """Allreduce the whole vector in rows, then in columns."""
    task = parts.task
    here = parts.in_rows(0, "allreduce", task.input, task.output, parts.whole)
    parts.in_columns(1, "allreduce", here, task.output, parts.whole)


def allgather(parts: Parts) -> None:
    """Allgather in rows, then allgather the blocks of whole rows in columns."""
    task, of_rows = parts.task, parts.task.given.union(parts.grid.rows)
    here = parts.in_rows(0, "allgather", task.input, task.output, parts.blocks_of_row)
    parts.in_columns(1, "allgather", here, task.output, lambda _: of_rows)


def reduce_scatter_block(parts: Parts) -> None:
    """Reduce-scatter the blocks of whole rows in columns, then reduce-scatter in rows.

    If operands may be exchanged, columns come first, so that rows only move the blocks
    of a row. Otherwise, rows come first, because their ranks are neighbors.
    """
    if not parts.is_commutative:
        leaders.reduce_scatter_block(parts)
        return
    task, kind = parts.task, "reduce_scatter_block"
    of_rows = task.given.union(parts.grid.rows)
    stage = parts.sketch.scratch((*parts.path, -1, 0), task.ranks)
    target = stage if parts.grid.n_columns > 1 else task.output
    here = parts.in_columns(0, kind, task.input, target, lambda _: of_rows)
    parts.in_rows(1, kind, here, task.output, parts.blocks_of_row)


def scan(parts: Parts) -> None:
    """Scan or exscan in rows, exscan the totals of rows in the last column, then combine.

    For an exscan, the last rank of a row combines its result with its own operand to get the
    total of the row.
    """
    is_exclusive = parts.task.kind == "exscan"
    task, sketch, grid = parts.task, parts.sketch, parts.grid
    role, last = parts.roles[0], np.array([row[-1] for row in grid.rows])
    total, before = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    inside = np.zeros(sketch.n_ranks, dtype=np.bool_)
    if is_exclusive:
        # The last rank combines its result with its own operand. An exscan in place would
        # overwrite this operand, so it is saved first.
        whole = parts.whole_of(last)
        sketch.copy((*parts.path, 0, 0), role, task.ranks[last], task.input, total, whole)
    for row in parts.split_rows(range(parts.n_rows))[0]:
        ends = task.input, task.output, task.given
        inside |= parts.inside(1, task.kind, grid.rows[row], 0, *ends)
    parts.repeat(inside, range(parts.n_rows))
    if not is_exclusive:
        here = task.output.where(inside, task.input)
        leaders.settle(parts, 2, np.arange(task.size), here)
        totals = task.output
    else:
        joined = last[inside[task.ranks[last]]]
        whole = parts.whole_of(joined)
        sketch.reduce((*parts.path, 2, 0), role, task.ranks[joined], task.output, total, whole)
        totals = total
    parts.along(3, "exscan", last, 0, totals, before, task.given)
    later, root = range(1, parts.n_rows), len(grid.rows[0]) - 1
    parts.in_rows(4, "bcast", before, before, parts.whole, rows=later, root=root)
    leaders.combine_before(parts, 5, before)


FORMS: dict[str, Callable[[Parts], None]] = {
    # One leader per row corresponds to the paper's leader group followed by concurrent groups.
    "bcast": leaders.bcast,
    "reduce": leaders.reduce,
    "gather": leaders.gather,
    "scatter": leaders.scatter,
    "allreduce": allreduce,
    "allgather": allgather,
    "reduce_scatter_block": reduce_scatter_block,
    "alltoall": pairs.alltoall,
    "scan": scan,
    "exscan": scan,
    "barrier": leaders.barrier,
    "neighbor_alltoall": neighbors.exchange,
}
"""The form of every collective, by kind."""
ONE_LEADER = frozenset({"bcast", "reduce", "gather", "scatter"})
"""Kinds whose rows have one leader; for other kinds, every rank is in a column."""
