"""Compiled loops of the builder: compression of pieces and derivation of hazards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled

Ints = npt.NDArray[np.integer[Any]]


@compiled
def compress_pieces(
    indptr: Ints, buffer: Ints, offset: Ints, count: Ints, stride: Ints, repeat: Ints
) -> Any:
    """Merge the blocks of every row into longer ones, or strided ones.

    `stride` and `repeat` are empty where no piece repeats. What comes out does not
    depend on how blocks come in, one by one or as strided pieces.

    Returns the new indptr, the number of pieces, and a row each of their buffer,
    offset, count, stride and repeat.
    """
    repeats = len(repeat) > 0
    out_indptr = np.zeros_like(indptr)
    out = np.empty((5, len(buffer) + 1), np.int64)
    k = 0
    for row in range(len(indptr) - 1):
        first = k
        is_open = False
        where, low, length = np.int64(0), np.int64(0), np.int64(0)
        for i in range(indptr[row], indptr[row + 1]):
            for turn in range(repeat[i] if repeats else 1):
                begin = offset[i] + (turn * stride[i] if repeats else 0)
                if is_open and where == buffer[i] and low + length == begin:
                    length += count[i]
                    continue
                if is_open:
                    k = _fold_block(out, first, k, where, low, length)
                    if k == out.shape[1]:
                        out = np.concatenate((out, np.empty_like(out)), axis=1)
                is_open = True
                where, low, length = buffer[i], begin, count[i]
        if is_open:
            k = _fold_block(out, first, k, where, low, length)
            if k == out.shape[1]:
                out = np.concatenate((out, np.empty_like(out)), axis=1)
        out_indptr[row + 1] = k
    return out_indptr, k, out


@compiled
def _fold_block(out: Ints, first: int, k: int, where: int, low: int, length: int) -> int:
    """Add a block to the strided piece before it, or as a piece; return how many there are."""
    if k > first and out[0, k - 1] == where and out[2, k - 1] == length:
        step = low - out[1, k - 1]
        if out[4, k - 1] == 1:
            out[3, k - 1], out[4, k - 1] = step, 2
            return k
        if step == out[3, k - 1] * out[4, k - 1]:
            out[4, k - 1] += 1
            return k
    out[0, k], out[1, k], out[2, k], out[3, k], out[4, k] = where, low, length, 0, 1
    return k + 1


@compiled
def number_accesses(
    buffer: Any, home: Any, low: Ints, high: Ints, number: Any, width: Ints, base: Ints
) -> Any:
    """Look up the atoms between which every access lies.

    Atom `number[b, x]` begins at element x of buffer b; every home has
    ``width[b]`` of them, from ``base[b]`` on.
    """
    first, last = np.empty(len(low), np.int64), np.empty(len(low), np.int64)
    for i in range(len(low)):
        b = buffer[i]
        start = base[b] + home[i] * width[b]
        first[i] = start + number[b, low[i]]
        last[i] = start + number[b, high[i]]
    return first, last


@compiled
def derive_hazards(
    read_indptr: Ints,
    read_low: Ints,
    read_high: Ints,
    write_indptr: Ints,
    write_low: Ints,
    write_high: Ints,
    n_atoms: int,
    n_reads: int,
) -> Any:
    """Find, in row order, every access that must come before each task.

    Task i reads atoms ``read_low[j]:read_high[j]`` for j in
    ``read_indptr[i]:read_indptr[i+1]``, then writes likewise. A read waits for
    the atom's last writer; a write for all readers since, or where there are
    none for the last writer.

    Returns the CSR (indptr, predecessors) of the hazards; the predecessors of
    a task are distinct.
    """
    n = len(read_indptr) - 1
    last_writer = np.full(n_atoms, -1, np.int32)
    reader_head = np.full(n_atoms, -1, np.int32)
    reader_task = np.empty(n_reads, np.int32)
    reader_next = np.empty(n_reads, np.int32)
    n_nodes = 0
    seen = np.full(n, -1, np.int32)
    indptr = np.zeros(n + 1, np.int32)
    before = np.empty(2 * n + 16, np.int32)
    k = 0
    for task in range(n):
        for j in range(read_indptr[task], read_indptr[task + 1]):
            for atom in range(read_low[j], read_high[j]):
                writer = last_writer[atom]
                if writer >= 0 and seen[writer] != task:
                    seen[writer] = task
                    if k == len(before):
                        before = np.concatenate((before, np.empty(k, np.int32)))
                    before[k] = writer
                    k += 1
                reader_task[n_nodes] = task
                reader_next[n_nodes] = reader_head[atom]
                reader_head[atom] = n_nodes
                n_nodes += 1
        for j in range(write_indptr[task], write_indptr[task + 1]):
            for atom in range(write_low[j], write_high[j]):
                writer = last_writer[atom]
                node = reader_head[atom]
                has_other_reader = False
                while node >= 0:
                    reader = reader_task[node]
                    if reader != task:
                        has_other_reader = True
                        if seen[reader] != task:
                            seen[reader] = task
                            if k == len(before):
                                before = np.concatenate((before, np.empty(k, np.int32)))
                            before[k] = reader
                            k += 1
                    node = reader_next[node]
                # A reader waits for the writer before it, so the writer itself is implied.
                if writer >= 0 and not has_other_reader and seen[writer] != task:
                    seen[writer] = task
                    if k == len(before):
                        before = np.concatenate((before, np.empty(k, np.int32)))
                    before[k] = writer
                    k += 1
                last_writer[atom] = task
                reader_head[atom] = -1
        indptr[task + 1] = k
    return indptr, before[:k].copy()


@compiled
def slice_blocks(
    indptr: Ints, buffer: Ints, offset: Ints, count: Ints, row: Ints, low: Ints, high: Ints
) -> Any:
    """Cut rows of blocks at element positions.

    Slice k is elements ``low[k]:high[k]`` of row ``row[k]``, whose elements
    are its blocks' one after another. Returns a CSR by slice: indptr, buffer,
    offset, count.
    """
    n_out = 0
    for fill in range(2):
        if fill == 0:
            out_buffer = np.empty(0, np.int64)
            out_offset, out_count = out_buffer.copy(), out_buffer.copy()
            out_indptr = np.zeros(len(row) + 1, np.int64)
        else:
            out_buffer = np.empty(n_out, np.int64)
            out_offset, out_count = np.empty(n_out, np.int64), np.empty(n_out, np.int64)
        n_out = 0
        for k in range(len(row)):
            start = 0
            for i in range(indptr[row[k]], indptr[row[k] + 1]):
                first = max(low[k], start)
                last = min(high[k], start + count[i])
                if first < last:
                    if fill == 1:
                        out_buffer[n_out] = buffer[i]
                        out_offset[n_out] = offset[i] + first - start
                        out_count[n_out] = last - first
                    n_out += 1
                start += count[i]
            out_indptr[k + 1] = n_out
    return out_indptr, out_buffer, out_offset, out_count
