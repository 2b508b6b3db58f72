"""Merging of several tasks into one, for passes that regroup tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.pieces import Pieces, pieces_of, recompressed, replaced, with_pieces
from collplan.planner.plan.plan import COLUMNS, Plan
from collplan.planner.plan.ragged import Dependencies


def join_tasks(plan: Plan, order: Ints, bounds: Ints, what: str) -> Plan:
    """Return a plan in which each group of tasks is one task.

    The new task has the reads and writes of its members, in their order, and all their
    dependencies. Its other columns are those of the first member.

    Parameters
    ----------
    plan : Plan
    order : ndarray of int64, shape (n_tasks,)
        Rows, group by group, groups in the order of the new rows.
    bounds : ndarray of int64, shape (n_groups + 1,)
        First index of every group in `order`.
    what : str
        Name of the caller, for error messages.

    Raises
    ------
    AlgorithmError
        If a task between members of a group depends on one of them.
    """
    begins, n = bounds[:-1], len(bounds) - 1
    target = np.empty(plan.n_tasks, dtype=np.int32)
    target[order] = csr.row_numbers(bounds)
    columns = {name: getattr(plan, name)[order[begins]] for name in COLUMNS}
    if n:
        columns["priority"] = np.minimum.reduceat(plan.priority[order], begins)
    indptr, before, kind, ahead = _contract(*plan.deps.for_kernels(), order, bounds, target)
    if ahead >= 0:
        raise AlgorithmError(
            f"passes.{what}: {plan.task(int(order[bounds[ahead]]))} would wait for a message that "
            "merging delays; leave the pass out"
        )
    reads, writes = (_joined(side, order, bounds) for side in pieces_of(plan))
    deps = Dependencies(indptr, before, kind)
    return with_pieces(plan, reads, writes, **columns, deps=deps, foreign=None)


def _joined(pieces: Pieces, order: Ints, bounds: Ints) -> Pieces:
    joined = pieces.take(order).merged(bounds)
    rows = np.flatnonzero((csr.lengths_of(bounds) > 1) & (csr.lengths_of(joined.indptr) > 1))
    return replaced(joined, rows, recompressed(joined.take(rows)))


@compiled
def _contract(
    indptr: Ints, before: Ints, kind: Ints, order: Ints, bounds: Ints, target: Ints
) -> Any:
    """Return the dependencies of groups, and the first group that waits for a later one, or -1.

    Of several edges from one group, a hazard on completion has precedence.
    """
    n = len(bounds) - 1
    out_indptr = np.zeros(n + 1, np.int64)
    out_before, out_kind = np.empty(len(before), np.int32), np.empty(len(before), np.int8)
    place = np.full(n, -1, np.int64)
    k, ahead = 0, -1
    for group in range(n):
        first = k
        for i in range(bounds[group], bounds[group + 1]):
            for j in range(indptr[order[i]], indptr[order[i] + 1]):
                other = target[before[j]]
                if other == group:
                    continue
                if other > group and before[j] < order[i] and ahead < 0:
                    ahead = group
                if place[other] >= first:
                    known = out_kind[place[other]]
                    if kind[j] == 0 or ((known & 1) != 0 and (kind[j] & 1) == 0):
                        out_kind[place[other]] = kind[j]
                    continue
                place[other] = k
                out_before[k], out_kind[k] = other, kind[j]
                k += 1
        out_indptr[group + 1] = k
    return out_indptr, out_before[:k].copy(), out_kind[:k].copy(), ahead
