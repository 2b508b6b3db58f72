"""Extents while a plan is being built: CSR tables to select, stack, join and compress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.plan.kernels import compress_pieces
from collplan.planner.plan.plan import NO_PATTERN, Extents

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints


_ZERO = np.zeros(1, dtype=np.int64)
_ONE = np.ones(1, dtype=np.int64)
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
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    @property
    def elements(self) -> Ints:
        """Return the elements of every row."""
        elements = self.count if is_constant(self.repeat) else self.count * self.repeat
        if len(elements) == len(self) and (np.diff(self.indptr) == 1).all():
            return elements
        running = running_total(elements)
        return running[self.indptr[1:]] - running[self.indptr[:-1]]

    def take(self, rows: Ints) -> Pieces:
        """Return the given rows, in the given order."""
        every_length = np.diff(self.indptr)
        lengths = every_length[rows]
        indptr = running_total(lengths)
        if (every_length == 1).all():
            index = np.asarray(rows)  # a piece a row: no gather of ranges is needed
        else:
            index = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
            index += np.arange(indptr[-1])
        return Pieces(indptr, *(gather(column, index) for column in self.columns()))

    def masked(self, kept: npt.NDArray[np.bool_]) -> Pieces:
        """Return the same rows, those outside `kept` without pieces."""
        lengths = np.where(kept, np.diff(self.indptr), 0)
        index = np.flatnonzero(np.repeat(kept, np.diff(self.indptr)))
        return Pieces(running_total(lengths), *(gather(column, index) for column in self.columns()))

    def blocks(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return every contiguous block as ``(row, buffer, low, high)``."""
        if is_constant(self.repeat) or (self.repeat == 1).all():
            return self.owner, self.buffer, self.offset, self.offset + self.count
        index = np.repeat(np.arange(len(self.buffer)), self.repeat)
        turn = np.arange(len(index)) - np.repeat(running_total(self.repeat)[:-1], self.repeat)
        low = self.offset[index] + turn * self.stride[index]
        return self.owner[index], self.buffer[index], low, low + self.count[index]

    def columns(self) -> tuple[Any, ...]:
        """Return the columns of the pieces, indptr left out."""
        return self.buffer, self.offset, self.count, self.stride, self.repeat


def is_constant(column: Ints) -> bool:
    """Return whether a column is one entry, broadcast."""
    return column.strides == (0,)


def gather(column: Ints, index: Ints) -> Any:
    """Return the given entries of a column; of a broadcast one without storing them."""
    return _repeated(column[:1], len(index)) if is_constant(column) else column[index]


def _repeated(entry: Ints, n: int) -> Any:
    """Return the one entry of an array n times, as ``broadcast_to`` does in ten times the time."""
    return np.ndarray(n, entry.dtype, entry, strides=(0,))


def concatenate(columns: Sequence[Ints]) -> Any:
    """Return columns one after another, broadcast where all of them are the same entry."""
    if all(is_constant(column) or not len(column) for column in columns):
        entries = [column[:1] for column in columns if len(column)]
        if entries and all(entry == entries[0] for entry in entries):
            return _repeated(entries[0], sum(map(len, columns)))
    return np.concatenate(columns)


def running_total(lengths: npt.ArrayLike) -> Ints:
    """Return cumulative sums that begin with 0: a CSR's indptr."""
    lengths = np.asarray(lengths)
    total = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=total[1:])
    return total


def expand(first: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of several ranges, one range after another.

    Returns
    -------
    owner, index : ndarray of int64, shape (sum of lengths,)
        The range of every number, and the number itself.

    Examples
    --------
    >>> [column.tolist() for column in expand(np.array([5, 0]), np.array([2, 3]))]
    [[0, 0, 1, 1, 1], [5, 6, 0, 1, 2]]
    """
    begins = running_total(lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(begins[-1]) + (first - begins[:-1])[owner]


def group_offsets(group: Ints, sizes: Ints) -> Ints:
    """Return the begins of pieces that each group lays one after another.

    Examples
    --------
    >>> group_offsets(np.array([1, 0, 1, 1]), np.array([5, 7, 2, 4])).tolist()
    [0, 0, 5, 7]
    """
    order = np.argsort(group, kind="stable")
    ends = running_total(sizes[order])
    first = np.searchsorted(group[order], group[order])
    begins = np.empty(len(sizes), dtype=np.int64)
    begins[order] = ends[:-1] - ends[first]
    return begins


def run_starts(*keys: Ints) -> npt.NDArray[np.bool_]:
    """Mark the entries at which any of some columns differs from the entry before.

    Examples
    --------
    >>> run_starts(np.array([3, 3, 3, 5]), np.array([0, 0, 1, 1])).tolist()
    [True, False, True, True]
    """
    starts = np.zeros(len(keys[0]), dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    return starts


DENSE: Final = 16
"""Values are dense if their range holds at most this many integers per value."""


def sorted_unique(values: Ints) -> Ints:
    """Return the distinct values in ascending order.

    Numpy's own function hashes, which is slow on millions of values. Dense values,
    such as addresses in buffers, are marked in one pass; others are sorted.
    """
    if not len(values):
        return values
    least = values.min()
    extent = int(values.max()) - int(least) + 1
    if extent <= DENSE * len(values):
        is_there = np.zeros(extent, dtype=bool)
        is_there[values - least] = True
        return np.asarray(np.flatnonzero(is_there) + least)
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def contiguous(indptr: Ints, buffer: Ints, offset: Ints, count: Ints) -> Pieces:
    """Return pieces that do not repeat; pieces of a row that form a pattern are joined."""
    pieces = Pieces(indptr, buffer, offset, count, *once(len(buffer)))
    return compress(pieces) if (np.diff(indptr) > 1).any() else pieces


def once(n: int) -> tuple[Ints, Ints]:
    """Return the stride and repeat of pieces that do not repeat."""
    return _repeated(_ZERO, n), _repeated(_ONE, n)


def empty(n_rows: int) -> Pieces:
    """Return `n_rows` rows without pieces."""
    nothing = np.zeros(0, dtype=np.int64)
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    return Pieces(indptr, nothing.astype(np.int8), nothing, nothing, *once(0))


def stack(parts: Sequence[Pieces]) -> Pieces:
    """Return the rows of all parts, one part after another."""
    starts = running_total([len(part.buffer) for part in parts])
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
    joined = both.take(interleaved)
    return Pieces(joined.indptr[::2], *joined.columns())


def without_gapless(pieces: Pieces) -> Pieces:
    """Return the same rows, with repeats that leave no gap as one long piece."""
    is_gapless = (pieces.repeat > 1) & (pieces.stride == pieces.count)
    return Pieces(
        pieces.indptr,
        pieces.buffer,
        pieces.offset,
        np.where(is_gapless, pieces.count * pieces.repeat, pieces.count),
        np.where(is_gapless, 0, pieces.stride),
        np.where(is_gapless, 1, pieces.repeat),
    )


def recompressed(pieces: Pieces) -> Pieces:
    """Return the same elements, in as few pieces as can be."""
    row, buffer, low, high = pieces.blocks()
    return contiguous(
        running_total(np.bincount(row, minlength=len(pieces))), buffer, low, high - low
    )


def replaced(pieces: Pieces, rows: Ints, others: Pieces) -> Pieces:
    """Return pieces in which row ``rows[i]`` is row i of `others`."""
    if not len(rows):
        return pieces
    index = np.arange(len(pieces))
    index[rows] = len(pieces) + np.arange(len(rows))
    return stack((pieces, others)).take(index)


def compress(pieces: Pieces) -> Pieces:
    """Merge neighbouring blocks of a row, then runs of blocks at one stride."""
    is_plain = is_constant(pieces.repeat) and (not len(pieces.repeat) or pieces.repeat[0] == 1)
    columns = pieces.columns()[: 3 if is_plain else 5]
    columns = tuple(np.ascontiguousarray(column, dtype=np.int64) for column in columns)
    patterns = (_NOTHING, _NOTHING) if is_plain else ()
    indptr, n, merged = compress_pieces(np.ascontiguousarray(pieces.indptr), *columns, *patterns)
    buffer, offset, count, stride, repeat = merged[:, :n].copy()
    return Pieces(indptr, buffer.astype(np.int8), offset, count, stride, repeat)


_NOTHING = np.zeros(0, dtype=np.int64)


def to_extents(reads: Pieces, writes: Pieces) -> tuple[Extents, Extents, Ints]:
    """Return both tables as a plan's extents, and the pattern table they share."""
    stride = concatenate((reads.stride, writes.stride))
    repeat = concatenate((reads.repeat, writes.repeat))
    patterns = NO_PATTERN
    if is_constant(repeat):
        pattern = np.broadcast_to(np.int32(0), repeat.shape)
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
    """Return a plan's extents as pieces; an outer repeat is written out."""
    indptr: Ints = extents.indptr.astype(np.int64)
    if len(patterns) == 1:
        alone = once(len(extents))
        return Pieces(indptr, extents.buffer, extents.offset, extents.count, *alone)
    stride, repeat, stride2, repeat2 = patterns[extents.pattern].T
    offset, buffer, count = extents.offset, extents.buffer, extents.count
    if (repeat2 > 1).any():
        index = np.repeat(np.arange(len(buffer)), repeat2)
        starts = running_total(repeat2)
        turn = np.arange(len(index)) - starts[:-1][index]
        offset = offset[index] + turn * stride2[index]
        buffer, count, stride, repeat = (c[index] for c in (buffer, count, stride, repeat))
        indptr = starts[indptr]
    return Pieces(indptr, buffer, offset, count, stride, repeat)
