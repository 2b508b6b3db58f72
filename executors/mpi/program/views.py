"""Extents as numpy views, and the local tasks that work on them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.program.program import Program
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Extents

View = npt.NDArray[Any]
Action = Callable[[], None]
Apply = Callable[[View, View, View], object]


def extent_views(
    buffers: Sequence[View], patterns: Ints, extents: Extents, task: int
) -> list[View]:
    """Return one view per non-empty extent of a task.

    A contiguous extent is a 1-D view; a strided one has shape
    ``(repeat1, repeat0, count)``, so that its elements are in C order.
    """
    views = []
    for i in range(extents.indptr[task], extents.indptr[task + 1]):
        count, offset = int(extents.count[i]), int(extents.offset[i])
        if count == 0:
            continue
        flat = buffers[extents.buffer[i]]
        stride0, repeat0, stride1, repeat1 = (int(x) for x in patterns[extents.pattern[i]])
        if repeat0 == repeat1 == 1:
            views.append(flat[offset : offset + count])
            continue
        strides = (stride1 * flat.itemsize, stride0 * flat.itemsize, flat.itemsize)
        # The program checked every extent against its buffer.
        views.append(as_strided(flat[offset:], (repeat1, repeat0, count), strides))
    return views


def local_action(
    program: Program,
    task: int,
    buffers: Sequence[View],
    patterns: Ints,
    apply: Apply | None,
) -> Action | None:
    """Return what a COPY, REDUCE or COMPUTE does, or None where it has nothing to do."""
    op = program.op[task]
    if op == Op.COMPUTE:
        duration_ns = int(program.duration_ns[task])
        return (lambda: _compute(duration_ns)) if duration_ns else None
    reads = extent_views(buffers, patterns, program.reads, task)
    writes = extent_views(buffers, patterns, program.writes, task)
    if not writes:
        return None
    if op == Op.COPY:
        return _sequence(_copies(writes, reads))
    assert apply is not None
    left, right = _split_operands(reads, sum(view.size for view in writes))
    return _reduction(apply, left, right, writes)


def _compute(duration_ns: int) -> None:
    """Keep the core busy, as the computation that the schedule stands for would."""
    end = time.perf_counter_ns() + duration_ns
    while time.perf_counter_ns() < end:
        pass


def _copies(writes: list[View], reads: list[View]) -> list[Action]:
    pieces = _align(writes, reads)
    # Piecewise, a task could overwrite what a later piece still has to read.
    if pieces is not None:
        # A buffer at its mirror is staged already.
        pieces = [pair for pair in pieces if not _is_same(*pair)]
    if pieces is None or (len(pieces) > 1 and _overlap(writes, reads)):
        staging = np.empty(sum(view.size for view in writes), dtype=writes[0].dtype)
        return _copies([staging], reads) + _copies(writes, [staging])
    return [_copy(write, read) for write, read in pieces]


def _is_same(write: View, read: View) -> bool:
    return write.ctypes.data == read.ctypes.data and write.strides == read.strides


def _copy(write: View, read: View) -> Action:
    def copy() -> None:
        write[...] = read

    return copy


def _reduction(apply: Apply, left: list[View], right: list[View], writes: list[View]) -> Action:
    pieces = _align(writes, left, right)
    if pieces is not None and (len(pieces) == 1 or not _overlap(writes, left + right)):
        return _sequence([_apply(apply, a, b, out) for out, a, b in pieces])
    n, dtype = sum(view.size for view in writes), writes[0].dtype
    a, b = np.empty(n, dtype), np.empty(n, dtype)
    gather = _copies([a], left) + _copies([b], right)
    # Operations promise to work in place on their left operand, so a is the result too.
    return _sequence([*gather, _apply(apply, a, b, a), *_copies(writes, [a])])


def _apply(apply: Apply, left: View, right: View, out: View) -> Action:
    return lambda: (apply(left, right, out), None)[1]


def _sequence(actions: list[Action]) -> Action:
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _overlap(writes: list[View], reads: list[View]) -> bool:
    return any(np.may_share_memory(write, read) for write in writes for read in reads)


def _split_operands(reads: list[View], n_elements: int) -> tuple[list[View], list[View]]:
    """Split a REDUCE's extents into those of its left and of its right operand."""
    left: list[View] = []
    for i, view in enumerate(reads):
        need = n_elements - sum(part.size for part in left)
        if need == 0:
            return left, reads[i:]
        if view.size > need:
            both = [view] if view.ndim == 1 else [row for plane in view for row in plane]
            if len(both) > 1:
                return _split_operands([*left, *both, *reads[i + 1 :]], n_elements)
            return [*left, view[:need]], [view[need:], *reads[i + 1 :]]
        left.append(view)
    return left, []


def _align(*sides: list[View]) -> list[tuple[View, ...]] | None:
    """Cut lists of views into tuples of equal shape, or return None where strides forbid it.

    Contiguous views are cut and reshaped to fit; two strided ones must have one shape.
    """
    queues = [list(reversed(side)) for side in sides]
    pieces: list[tuple[View, ...]] = []
    while queues[0]:
        heads = [queue.pop() for queue in queues]
        n = min(head.size for head in heads)
        for i, (head, queue) in enumerate(zip(heads, queues, strict=True)):
            if head.size > n:
                if head.ndim > 1:
                    return None
                queue.append(head[n:])
                heads[i] = head[:n]
        shapes = {head.shape for head in heads if head.ndim > 1}
        if len(shapes) > 1:
            return None
        shape = shapes.pop() if shapes else (n,)
        assert math.prod(shape) == n
        pieces.append(tuple(head if head.shape == shape else head.reshape(shape) for head in heads))
    return pieces
