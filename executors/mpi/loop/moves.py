"""Copies and reductions over lists of extents, by compiled cursors that advance together.

Each step processes the largest piece that is contiguous in all operands and in the result, with
the largest number of repeats that they have in common. In a contiguous extent, pieces of any size
repeat:

    write  [ a b c d e f ]     one run of six elements: pieces of two repeat three times
    read   [a b] . [c d] . [e f]
"""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop.calls import call, inlined, inner, move, record_at
from collplan.executors.mpi.loop.records import CURSOR, EXTENT
from collplan.executors.mpi.loop.state import Long, Record, base_of, local_at

# Indices of the extents of the engine's staging memory.
STAGED_LEFT = 0
STAGED_RIGHT = 1


@inlined
def _extent(cursor: Record) -> Record:
    return record_at(cursor.extents, cursor.extent, EXTENT)


@inlined
def _find_run(state: Record, cursor: Record) -> None:
    extent = _extent(cursor)
    base = base_of(state, extent.buffer)
    cursor.address = (
        base + extent.offset + cursor.outer * extent.outer_stride + cursor.inner * extent.stride
    )


@inlined
def _open(state: Record, cursor: Record, extents: int, first: int) -> None:
    cursor.extents = extents
    cursor.extent = first
    cursor.outer = 0
    cursor.inner = 0
    cursor.at = 0
    _find_run(state, cursor)


@inlined
def _open_right(state: Record, cursor: Record, task: Record) -> None:
    """Place a cursor on the right operand, which may begin inside an extent."""
    _open(state, cursor, state.reads, task.first_right)
    if task.right_skip:
        extent = _extent(cursor)
        run = task.right_skip // extent.run
        cursor.at = task.right_skip - run * extent.run
        cursor.outer = run // extent.repeat
        cursor.inner = run - cursor.outer * extent.repeat
        _find_run(state, cursor)


@inlined
def _contiguous(cursor: Record) -> Long:
    return _extent(cursor).run - cursor.at


@inlined
def _repeats(cursor: Record, piece: int) -> Long:
    """Set and return the number of following pieces of a size, and set their distance."""
    extent = _extent(cursor)
    if cursor.at == 0 and piece == extent.run:
        cursor.rows = extent.repeat - cursor.inner
        cursor.row_stride = extent.stride
    else:
        cursor.rows = (extent.run - cursor.at) // piece
        cursor.row_stride = piece
    return cursor.rows


@inner
def _go_on(state: Record, cursor: Record, piece: int, rows: int, is_last: bool) -> None:
    extent = _extent(cursor)
    if cursor.at == 0 and piece == extent.run:
        cursor.inner += rows
    else:
        cursor.at += rows * piece
        if cursor.at < extent.run:
            return
        cursor.at = 0
        cursor.inner += 1
    if cursor.inner == extent.repeat:
        cursor.inner = 0
        cursor.outer += 1
        if cursor.outer == extent.outer_repeat:
            cursor.outer = 0
            cursor.extent += 1
            if is_last:
                return
    _find_run(state, cursor)


@inner
def _copy_rows(
    target: int, target_stride: int, source: int, source_stride: int, piece: int, rows: int
) -> None:
    # A buffer at the place of its mirror needs no copy.
    if target == source and (rows == 1 or target_stride == source_stride):
        return
    if rows == 1:
        move(target, source, piece)
    elif piece == 8:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, 8)
    elif piece == 4:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, 4)
    elif piece == 16:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, 16)
    elif piece == 2:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, 2)
    elif piece == 1:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, 1)
    else:
        for i in range(rows):
            move(target + i * target_stride, source + i * source_stride, piece)


@inner
def _copy_between(state: Record, target: Record, source: Record, n_bytes: int) -> None:
    while n_bytes > 0:
        # Staging memory, and an extent that both operands share, may be larger than n_bytes.
        piece = min(n_bytes, _contiguous(target), _contiguous(source))
        rows = min(n_bytes // piece, _repeats(target, piece), _repeats(source, piece))
        to, of = target.address + target.at, source.address + source.at
        _copy_rows(to, target.row_stride, of, source.row_stride, piece, rows)
        n_bytes -= piece * rows
        _go_on(state, target, piece, rows, n_bytes == 0)
        _go_on(state, source, piece, rows, n_bytes == 0)


@inner
def _reduce_between(state: Record, out: Record, left: Record, right: Record, n_bytes: int) -> bool:
    """Reduce piece by piece; return False if the operation raised an exception."""
    while n_bytes > 0:
        piece = min(n_bytes, _contiguous(out), _contiguous(left), _contiguous(right))
        rows = min(n_bytes // piece, _repeats(out, piece), _repeats(left, piece))
        rows = min(rows, _repeats(right, piece))
        a, b, c = left.address + left.at, right.address + right.at, out.address + out.at
        n = piece // state.element_bytes
        strides = left.row_stride, right.row_stride, out.row_stride
        if call(state.reduce, (a, b, c, n, rows, strides[0], strides[1], strides[2])) != 0:
            return False
        n_bytes -= piece * rows
        for cursor in (out, left, right):
            _go_on(state, cursor, piece, rows, n_bytes == 0)
    return True


@inner
def _stage(state: Record, free: Record, operand: Record, number: int, n_bytes: int) -> None:
    """Copy an operand to staging memory, and place its cursor there.

    Parameters
    ----------
    state : Record
    free : Record
        Cursor that may be used for the copy.
    operand : Record
        Cursor of the operand.
    number : {STAGED_LEFT, STAGED_RIGHT}
        Staging memory.
    n_bytes : int
        Size of the operand.
    """
    _open(state, free, state.stage_extents, number)
    _copy_between(state, free, operand, n_bytes)
    _open(state, operand, state.stage_extents, number)


@inner
def run_copy(state: Record, row: int) -> Long:
    """Run a COPY task; return the number of bytes it copied."""
    task = local_at(state, row)
    target, source = record_at(state.cursors, 0, CURSOR), record_at(state.cursors, 1, CURSOR)
    _open(state, source, state.reads, task.first_read)
    if task.is_staged:
        _stage(state, target, source, STAGED_LEFT, task.n_bytes)
    _open(state, target, state.writes, task.first_write)
    _copy_between(state, target, source, task.n_bytes)
    return np.int64(task.n_bytes)


@inner
def run_reduce(state: Record, row: int) -> Long:
    """Run a REDUCE task; return the number of bytes of its result, or -1 after an exception."""
    task = local_at(state, row)
    out = record_at(state.cursors, 0, CURSOR)
    left = record_at(state.cursors, 1, CURSOR)
    right = record_at(state.cursors, 2, CURSOR)
    _open(state, left, state.reads, task.first_read)
    _open_right(state, right, task)
    if task.is_staged:
        _stage(state, out, left, STAGED_LEFT, task.n_bytes)
        _stage(state, out, right, STAGED_RIGHT, task.n_bytes)
        _open(state, out, state.stage_extents, STAGED_LEFT)
    else:
        _open(state, out, state.writes, task.first_write)
    if not _reduce_between(state, out, left, right, task.n_bytes):
        return np.int64(-1)
    if task.is_staged:
        _open(state, left, state.stage_extents, STAGED_LEFT)
        _open(state, out, state.writes, task.first_write)
        _copy_between(state, out, left, task.n_bytes)
    return np.int64(task.n_bytes)
