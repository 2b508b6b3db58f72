"""Working sets of copies and reductions, and whether a core's cache holds them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.columns import Column, Side, read_only
from collplan.planner.arrays import csr
from collplan.planner.arrays.jit import compiled
from collplan.planner.plan.plan import Buffer, Extents, Op, Plan

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_COPY, _REDUCE = int(Op.COPY), int(Op.REDUCE)
_SHARED = int(Buffer.SHARED)


def is_uncached(plan: Plan, cache_bytes: int) -> npt.NDArray[np.bool_]:
    """Tell which copies and reductions work on more than the cache holds.

    That is the buffers of their rank that they touch, whole, and of shared memory
    what their rank's copies and reductions of their phase touch. An extent that is
    touched again counts once, so blocks that are received into in turn are as few
    as they are, however much passes through them.

    Returns
    -------
    ndarray of bool, shape (n_tasks,)
    """
    marked: npt.NDArray[np.bool_] = _mark(
        read_only(plan.op, np.int8),
        read_only(plan.rank, np.int32),
        Column.of(plan.phase, np.int16),
        Side.of(plan.reads),
        Side.of(plan.writes),
        read_only(plan.buffer_sizes * plan.itemsize, np.int64),
        read_only(_shared_bytes(plan), np.int64),
        cache_bytes,
    )
    return marked


def _shared_bytes(plan: Plan) -> Longs:
    """Return what each rank touches of shared memory in each phase, shape (n_ranks, n_phases)."""
    n_phases = 1 + int(plan.phase.max(initial=0))
    total = np.zeros(plan.n_ranks * n_phases, dtype=np.int64)
    if plan.shared_sizes.any():
        sides = [_touched(plan, side, n_phases) for side in (plan.reads, plan.writes)]
        place, offset, count, pattern = (np.concatenate(pair) for pair in zip(*sides, strict=True))
        order = np.lexsort((pattern, count, offset, place))
        columns = (place, offset, count, pattern)
        first = order[csr.run_starts(*(column[order] for column in columns))]
        repeats = plan.patterns[:, 1] * plan.patterns[:, 3]
        np.add.at(total, place[first], count[first] * repeats[pattern[first]])
    # Extents that overlap count twice, but there is no more than the buffer.
    whole = plan.shared_sizes[plan.rank_node][:, None]
    return np.asarray(np.minimum(total.reshape(plan.n_ranks, n_phases), whole) * plan.itemsize)


def _touched(plan: Plan, side: Extents, n_phases: int) -> tuple[Longs, Longs, Longs, Longs]:
    """Return rank and phase, offset, count and pattern of extents that copies have there."""
    owner = side.owner()
    op = plan.op[owner]
    chosen = np.flatnonzero((side.buffer == _SHARED) & ((op == Op.COPY) | (op == Op.REDUCE)))
    row = owner[chosen]
    place = plan.rank[row].astype(np.int64) * n_phases + plan.phase[row]
    offset, count, pattern = side.offset[chosen], side.count[chosen], side.pattern[chosen]
    return place, offset.astype(np.int64), count.astype(np.int64), pattern.astype(np.int64)


@compiled
def _mark(
    op: npt.NDArray[np.int8],
    rank: Ints,
    phase: Column,
    reads: Side,
    writes: Side,
    sizes: Longs,
    shared: Longs,
    cache_bytes: int,
) -> npt.NDArray[np.bool_]:
    reads_indptr, _, _, (reads_buffer, reads_step) = reads
    writes_indptr, _, _, (writes_buffer, writes_step) = writes
    phases, phase_step = phase
    found = np.zeros(len(op), dtype=np.bool_)
    for row in range(len(op)):
        if op[row] != _COPY and op[row] != _REDUCE:
            continue
        touched = 0
        for i in range(reads_indptr[row], reads_indptr[row + 1]):
            touched |= 1 << reads_buffer[i * reads_step]
        for i in range(writes_indptr[row], writes_indptr[row + 1]):
            touched |= 1 << writes_buffer[i * writes_step]
        n_bytes = 0
        for buffer in range(sizes.shape[1]):
            if touched >> buffer & 1:
                n_bytes += sizes[rank[row], buffer]
        if touched >> _SHARED & 1:
            n_bytes += shared[rank[row], phases[row * phase_step]]
        found[row] = n_bytes > cache_bytes
    return found
