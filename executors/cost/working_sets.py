"""Working sets of copies and reductions, compared with the size of a core's cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.executors.cost.columns import dense, thin
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.plan import Buffer, Op, Plan

_COPY, _REDUCE = int(Op.COPY), int(Op.REDUCE)
_SHARED = int(Buffer.SHARED)


def is_uncached(plan: Plan, cache_bytes: int) -> Bools:
    """Return which copies and reductions have a working set larger than the cache.

    The working set of a task consists of all buffers of its rank that it accesses, in full, and
    of the extents of shared memory that copies and reductions of its rank access in the same
    phase. Each extent counts once.

    Parameters
    ----------
    plan : Plan
    cache_bytes : int
        Size of the cache per core in bytes.

    Returns
    -------
    ndarray of bool, shape (n_tasks,)
    """
    marked: Bools = _mark(
        (*dense(plan, "op", "rank"), *thin(plan, "phase")),
        tuple(dense(side, "indptr", "buffer") for side in (plan.reads, plan.writes)),
        plan.buffer_sizes * plan.itemsize,
        _shared_bytes(plan),
        cache_bytes,
    )
    return marked


def _shared_bytes(plan: Plan) -> Ints:
    """Return the bytes of shared memory that each rank touches in each phase.

    Returns
    -------
    ndarray of int64, shape (n_ranks, n_phases)
    """
    n_phases, parts = 1 + int(plan.phase.max(initial=0)), []
    total = np.zeros(plan.n_ranks * n_phases, dtype=np.int64)
    for side in (plan.reads, plan.writes) if plan.shared_sizes.any() else ():
        owner = side.owner()
        is_local = (plan.op[owner] == Op.COPY) | (plan.op[owner] == Op.REDUCE)
        chosen = np.flatnonzero((side.buffer == Buffer.SHARED) & is_local)
        row = owner[chosen]
        place = csr.joint_key(plan.rank[row], plan.phase[row], n_phases)
        parts.append((place, side.offset[chosen], side.count[chosen], side.pattern[chosen]))
    if parts:
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort(columns)
        first = order[csr.run_starts(*(column[order] for column in columns))]
        place, _, count, pattern = (column[first] for column in columns)
        np.add.at(total, place, count * (plan.patterns[:, 1] * plan.patterns[:, 3])[pattern])
    # Overlapping extents count twice, so the sum is limited to the size of the buffer.
    whole = plan.shared_sizes[plan.rank_node][:, None]
    return np.asarray(np.minimum(total.reshape(plan.n_ranks, n_phases), whole) * plan.itemsize)


@compiled
def _mark(
    columns: tuple[Any, ...],
    sides: tuple[tuple[Ints, ...], ...],
    sizes: Ints,
    shared: Ints,
    cache_bytes: int,
) -> Any:
    op, rank, (phase, step) = columns
    found = np.zeros(len(op), np.bool_)
    for row in range(len(op)):
        if op[row] != _COPY and op[row] != _REDUCE:
            continue
        touched = 0
        for indptr, buffer in sides:
            for i in range(indptr[row], indptr[row + 1]):
                touched |= 1 << buffer[i]
        n_bytes = 0
        for number in range(sizes.shape[1]):
            if touched >> number & 1:
                n_bytes += sizes[rank[row], number]
        if touched >> _SHARED & 1:
            n_bytes += shared[rank[row], phase[row * step]]
        found[row] = n_bytes > cache_bytes
    return found
