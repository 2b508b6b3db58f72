"""CSR tables of extents during planning, which can be selected, stacked, joined and compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import hull
from collplan.planner.errors import AlgorithmError
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.plan import NO_PATTERN, Plan
from collplan.planner.plan.ragged import Extents

BLOCKS_AT_ONCE: Final = 1 << 17
"""Number of blocks that are merged at once, which limits the size of temporary arrays."""
MOST_BLOCKS_IN_ALL: Final = 1 << 30
"""Largest number of blocks of a plan."""
_ZERO = np.zeros(1, dtype=np.int64)
_ONE = np.ones(1, dtype=np.int64)
_NOTHING = np.zeros(0, dtype=np.int64)
_ZERO.flags.writeable = _ONE.flags.writeable = False


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Pieces of buffers in CSR: row i owns ``indptr[i]:indptr[i+1]``, in order.

    A piece is `count` elements from `offset`, `repeat` times, `stride` apart.
    Where no piece repeats, `stride` and `repeat` are one entry broadcast.
    """

    indptr: Ints
    buffer: Ints
    offset: Ints
    count: Ints
    stride: Ints
    repeat: Ints

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def owner(self) -> Ints:
        """Return the row of every piece."""
        return csr.row_numbers(self.indptr)

    @property
    def elements(self) -> Ints:
        """Return the elements of every row."""
        elements = self.count if is_constant(self.repeat) else self.count * self.repeat
        if len(elements) == len(self) and (csr.lengths_of(self.indptr) == 1).all():
            return elements
        return csr.row_sums(self.indptr, elements)

    def take(self, rows: Ints) -> Pieces:
        """Return the given rows, in the given order."""
        every_length = csr.lengths_of(self.indptr)
        lengths = every_length[rows]
        indptr = csr.running_total(lengths)
        # Rows of one piece each do not need `ranges`.
        is_simple = (every_length == 1).all()
        index = np.asarray(rows) if is_simple else csr.ranges(self.indptr[:-1][rows], lengths)
        return Pieces(indptr, *(gather(column, index) for column in self.columns()))

    def select(self, kept: Bools) -> Pieces:
        """Return the same rows with only the pieces in `kept`."""
        if kept.all():
            return self
        index = np.flatnonzero(kept)
        indptr = csr.running_total(kept)[self.indptr]
        return Pieces(indptr, *(gather(column, index) for column in self.columns()))

    def masked(self, kept: Bools) -> Pieces:
        """Return the same rows, those outside `kept` without pieces."""
        return self.select(np.repeat(kept, csr.lengths_of(self.indptr)))

    def merged(self, bounds: Ints) -> Pieces:
        """Return rows ``bounds[i]:bounds[i+1]``, which cover all, as row i."""
        return Pieces(self.indptr[bounds], *self.columns())

    def blocks(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return every contiguous block as ``(row, buffer, low, high)``."""
        if is_constant(self.repeat) or (self.repeat == 1).all():
            return self.owner, self.buffer, self.offset, self.offset + self.count
        index, turn = csr.expand(self.repeat)
        low = self.offset[index] + turn * self.stride[index]
        return self.owner[index], self.buffer[index], low, low + self.count[index]

    def made_whole(self, which: Bools, count: Ints) -> Pieces:
        """Return the same rows, with some strided pieces as one block each of `count` elements."""
        stride, repeat = np.where(which, 0, self.stride), np.where(which, 1, self.repeat)
        count = np.where(which, count, self.count)
        return Pieces(self.indptr, self.buffer, self.offset, count, stride, repeat)

    def hulls(self) -> tuple[Ints, Ints]:
        """Return the first element of every piece and the one past its last."""
        if is_constant(self.repeat):
            return self.offset, self.offset + self.count
        return hull(self.offset, self.count, self.stride, self.repeat)

    def columns(self) -> tuple[Any, ...]:
        """Return the columns of the pieces, indptr left out."""
        return self.buffer, self.offset, self.count, self.stride, self.repeat


def is_constant(column: Ints) -> bool:
    """Return whether a column is one entry, broadcast."""
    return column.strides == (0,)


def gather(column: Ints, index: Ints) -> Any:
    """Return some entries of a column; of a broadcast column without storing them."""
    return csr.repeated(column[:1], len(index)) if is_constant(column) else column[index]


def concatenate(columns: Sequence[Ints]) -> Any:
    """Return columns one after another, broadcast where all of them are the same entry."""
    if all(is_constant(column) or not len(column) for column in columns):
        entries = [column[:1] for column in columns if len(column)]
        if entries and all(entry == entries[0] for entry in entries):
            return csr.repeated(entries[0], sum(map(len, columns)))
    return np.concatenate(columns)


def contiguous(indptr: Ints, buffer: Ints, offset: Ints, count: Ints) -> Pieces:
    """Return pieces that do not repeat; pieces of a row that form a pattern are joined."""
    pieces = Pieces(indptr, buffer, offset, count, *once(len(buffer)))
    return compress(pieces) if (csr.lengths_of(indptr) > 1).any() else pieces


def once(n: int) -> tuple[Ints, Ints]:
    """Return the stride and repeat of pieces that do not repeat."""
    return csr.repeated(_ZERO, n), csr.repeated(_ONE, n)


def one_each(buffer: Any, offset: Ints, count: Ints) -> Pieces:
    """Return rows of one piece that does not repeat, in one buffer or one buffer per row."""
    n = len(offset)
    return Pieces(np.arange(n + 1), np.full(n, buffer, dtype=np.int8), offset, count, *once(n))


def empty(n_rows: int) -> Pieces:
    """Return `n_rows` rows without pieces."""
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    return Pieces(indptr, _NOTHING.astype(np.int8), _NOTHING, _NOTHING, *once(0))


def stack(parts: Sequence[Pieces]) -> Pieces:
    """Return the rows of all parts, one part after another."""
    starts = csr.running_total([len(part.buffer) for part in parts])
    indptr = np.concatenate(
        [np.zeros(1, dtype=np.int64)]
        + [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
    )
    columns = zip(*(part.columns() for part in parts), strict=True)
    return Pieces(indptr, *map(concatenate, columns))


def join(left: Pieces, right: Pieces) -> Pieces:
    """Return row by row the pieces of `left`, then those of `right`."""
    n = len(left)
    both = stack((left, right))
    interleaved = np.arange(2 * n).reshape(2, n).T.ravel()
    return both.take(interleaved).merged(np.arange(0, 2 * n + 1, 2))


def without_gapless(pieces: Pieces) -> Pieces:
    """Return the same rows, with repeats that leave no gap as one long piece."""
    is_gapless = (pieces.repeat == 1) | (pieces.stride == pieces.count)
    return pieces.made_whole(is_gapless, pieces.count * pieces.repeat)


def recompressed(pieces: Pieces) -> Pieces:
    """Return the same elements in the smallest number of pieces."""
    row, buffer, low, high = pieces.blocks()
    return contiguous(csr.indptr_of(row, len(pieces)), buffer, low, high - low)


def replaced(pieces: Pieces, rows: Ints, others: Pieces) -> Pieces:
    """Return pieces in which row ``rows[i]`` is row i of `others`."""
    if not len(rows):
        return pieces
    index = np.arange(len(pieces))
    index[rows] = len(pieces) + np.arange(len(rows))
    return stack((pieces, others)).take(index)


def compress(pieces: Pieces) -> Pieces:
    """Merge neighboring blocks of a row, then runs of blocks at one stride.

    The result does not depend on whether blocks come one by one or as strided pieces.

    Raises
    ------
    AlgorithmError
        If there are more than `MOST_BLOCKS_IN_ALL` blocks, which would take minutes.
    """
    if not is_constant(pieces.repeat):
        # A row of one piece has nothing else to merge.
        pieces = without_gapless(pieces)
    several = np.flatnonzero(csr.lengths_of(pieces.indptr) > 1)
    if not len(several):
        return pieces
    rows = pieces if len(several) == len(pieces) else pieces.take(several)
    ends = csr.running_total(csr.row_sums(rows.indptr, rows.repeat))
    if ends[-1] > MOST_BLOCKS_IN_ALL:
        raise AlgorithmError(
            f"the messages and local steps have {ends[-1]:,} blocks of memory, at most "
            f"{MOST_BLOCKS_IN_ALL:,} are planned; use fewer ranks, or an algorithm of fewer blocks"
        )
    bounds = np.searchsorted(ends, np.arange(BLOCKS_AT_ONCE, ends[-1], BLOCKS_AT_ONCE))
    parts = [part for part in np.split(np.arange(len(rows)), bounds) if len(part)]
    made = [_compress(rows if len(parts) == 1 else rows.take(part)) for part in parts]
    compressed = made[0] if len(made) == 1 else stack(made)
    return compressed if rows is pieces else replaced(pieces, several, compressed)


def _compress(pieces: Pieces) -> Pieces:
    """Return rows with their blocks written out, merged, and joined to strided pieces again."""
    row, buffer, low, high = pieces.blocks()
    is_first = csr.run_starts(row)
    is_apart = is_first.copy()
    is_apart[1:] |= (buffer[1:] != buffer[:-1]) | (low[1:] != high[:-1])
    first = np.flatnonzero(is_apart)
    row, is_first, buffer, low = row[first], is_first[first], buffer[first], low[first]
    count = high[np.append(first[1:], len(high)) - 1] - low
    # Whether a block may repeat the one before it, and how far it is from it.
    is_alike = ~is_first
    is_alike[1:] &= (buffer[1:] == buffer[:-1]) & (count[1:] == count[:-1])
    stride = np.diff(low, prepend=low[:1])
    # A block at another stride begins a piece, and the next one is at the stride of that piece.
    turns = 1 + np.flatnonzero(is_alike[1:] & is_alike[:-1] & (stride[1:] != stride[:-1]))
    starts = csr.run_starts(turns - np.arange(len(turns)))
    place = np.arange(len(turns)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    is_alike[turns[place % 2 == 0]] = False
    first = np.flatnonzero(~is_alike)
    repeat = np.diff(np.append(first, len(low)))
    stride = np.where(repeat > 1, stride[np.minimum(first + 1, len(low) - 1)], 0)
    indptr = csr.indptr_of(row[first], len(pieces))
    return Pieces(indptr, buffer[first], low[first], count[first], stride, repeat)


def to_extents(reads: Pieces, writes: Pieces) -> tuple[Extents, Extents, Ints]:
    """Return both tables as a plan's extents, and the pattern table they share."""
    stride = concatenate((reads.stride, writes.stride))
    repeat = concatenate((reads.repeat, writes.repeat))
    patterns = NO_PATTERN
    if is_constant(repeat):
        pattern = csr.repeated(np.zeros(1, dtype=np.int32), len(repeat))
    else:
        repeats = repeat > 1
        pattern = np.zeros(len(stride), dtype=np.int32)
        pairs = np.column_stack((stride[repeats], repeat[repeats]))
        unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
        no_outer = np.broadcast_to(np.array([0, 1]), unique.shape)
        patterns = np.vstack((NO_PATTERN, np.hstack((unique, no_outer))))
        pattern[repeats] = inverse.ravel() + 1
    split = len(reads.stride)
    return (
        Extents(reads.indptr, reads.buffer, reads.offset, reads.count, pattern[:split]),
        Extents(writes.indptr, writes.buffer, writes.offset, writes.count, pattern[split:]),
        patterns,
    )


def from_extents(extents: Extents, patterns: Ints) -> Pieces:
    """Return a plan's extents as pieces. Outer repeats are expanded."""
    indptr: Ints = extents.indptr.astype(np.int64)
    if len(patterns) == 1:
        alone = once(len(extents))
        return Pieces(indptr, extents.buffer, extents.offset, extents.count, *alone)
    stride, repeat, stride2, repeat2 = patterns[extents.pattern].T
    offset, buffer, count = extents.offset, extents.buffer, extents.count
    if (repeat2 > 1).any():
        index, turn = csr.expand(repeat2)
        offset = offset[index] + turn * stride2[index]
        buffer, count, stride, repeat = (c[index] for c in (buffer, count, stride, repeat))
        indptr = csr.running_total(repeat2)[indptr]
    return Pieces(indptr, buffer, offset, count, stride, repeat)


def pieces_of(plan: Plan) -> tuple[Pieces, Pieces]:
    """Return the pieces that tasks of a plan read and write, with one row per task."""
    return from_extents(plan.reads, plan.patterns), from_extents(plan.writes, plan.patterns)


def with_pieces(plan: Plan, reads: Pieces, writes: Pieces, **changes: Any) -> Plan:
    """Return a plan whose tasks read and write other pieces, with further changes."""
    read_extents, write_extents, patterns = to_extents(reads, writes)
    return plan.replace(reads=read_extents, writes=write_extents, patterns=patterns, **changes)


@compiled
def slice_blocks(
    indptr: Ints, buffer: Ints, offset: Ints, count: Ints, row: Ints, low: Ints, high: Ints
) -> Any:
    """Cut rows of blocks at element positions.

    Slice k contains the elements ``low[k]:high[k]`` of row ``row[k]``, whose elements are the
    concatenation of its blocks. Returns a CSR table by slice: indptr, buffer, offset, count.
    """
    out_indptr, n = np.zeros(len(row) + 1, np.int64), 0
    out = np.empty((3, len(row) + len(buffer)), np.int64)
    for k in range(len(row)):
        start = 0
        for i in range(indptr[row[k]], indptr[row[k] + 1]):
            first, last = max(low[k], start), min(high[k], start + count[i])
            if first < last:
                if n == out.shape[1]:
                    out = np.concatenate((out, np.empty_like(out)), axis=1)
                out[0, n], out[1, n], out[2, n] = buffer[i], offset[i] + first - start, last - first
                n += 1
            start += count[i]
        out_indptr[k + 1] = n
    return out_indptr, out[0, :n], out[1, :n], out[2, :n]
