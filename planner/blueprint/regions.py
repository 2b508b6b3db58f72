"""Regions: the elements that components move, as intervals of a vector, with a row per chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.plan.pieces import Pieces, compress, once


@dataclass(frozen=True, eq=False)
class Regions:
    """Intervals of elements in CSR form.

    Row i has the intervals ``low[j]:low[j] + count[j]`` for j in ``indptr[i]:indptr[i + 1]``. The
    elements of a row are sent in the order of its intervals. An entry may represent `repeat`
    intervals, which begin `stride` elements apart.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_rows + 1,)
    low, count : ndarray of int64, shape (n_intervals,)
    stride, repeat : ndarray of int64, shape (n_intervals,), optional
        Omitted if no interval repeats.
    """

    indptr: Ints
    low: Ints
    count: Ints
    stride: Ints | None = None
    repeat: Ints | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(cls, low: Ints, count: Ints) -> Regions:
        """Return regions with one interval per row."""
        return cls(np.arange(len(low) + 1), np.asarray(low), np.asarray(count))

    @classmethod
    def stack(cls, parts: Sequence[Regions]) -> Regions:
        """Return the rows of all parts, one part after another."""
        if len(parts) == 1:
            return parts[0]
        tables = [part for part in parts if isinstance(part, PairTable)]
        if len(tables) == len(parts) and len({table.key for table in tables}) == 1:
            return tables[0].with_rows(sum(map(len, tables)))
        lengths = [np.diff(part.indptr) for part in parts]
        columns: list[tuple[Ints, ...]] = [(part.low, part.count) for part in parts]
        if any(part.repeat is not None for part in parts):
            columns = [(part.low, part.count, *part.pattern) for part in parts]
        return cls(
            csr.running_total(np.concatenate(lengths)),
            *map(np.concatenate, zip(*columns, strict=True)),
        )

    @property
    def pattern(self) -> tuple[Ints, Ints]:
        """Return the stride and repeat of every interval."""
        if self.stride is None or self.repeat is None:
            return once(len(self.low))
        return self.stride, self.repeat

    @cached_property
    def totals(self) -> Ints:
        """Number of elements of every row."""
        elements = self.count if self.repeat is None else self.count * self.repeat
        return csr.row_sums(self.indptr, elements)

    @property
    def largest(self) -> int:
        """Return the number of elements of the longest row."""
        return int(self.totals.max(initial=0))

    @cached_property
    def is_single(self) -> bool:
        """True if every row has exactly one entry."""
        return len(self.low) == len(self) and bool((self.indptr[1:] > self.indptr[:-1]).all())

    @cached_property
    def is_packed(self) -> bool:
        """True if rows are single intervals, each of which begins at the end of the previous."""
        if self.repeat is not None or not self.is_single:
            return False
        return bool((self.low[:-1] + self.count[:-1] == self.low[1:]).all())

    def take(self, rows: Ints) -> Regions:
        """Return the given rows, in the given order."""
        rows = np.asarray(rows)
        if self.is_single:
            indptr, index = np.arange(len(rows) + 1), rows
        else:
            indptr, index = csr.take_rows(self.indptr, rows)
        return Regions(
            indptr,
            self.low[index],
            self.count[index],
            None if self.stride is None else self.stride[index],
            None if self.repeat is None else self.repeat[index],
        )

    def grouped(self, rows: Ints, lengths: Ints) -> Regions:
        """Join each group of rows into one row, and compress its intervals.

        Parameters
        ----------
        rows : ndarray of int64
            Rows of all groups, one group after another.
        lengths : ndarray of int64, shape (n_groups,)
            Number of rows of every group.

        Returns
        -------
        Regions
            One row per group.

        Examples
        --------
        >>> rows = Regions.of(np.array([0, 4, 8]), np.array([2, 2, 2]))
        >>> both = rows.grouped(np.array([0, 1, 2, 1]), np.array([3, 1]))
        >>> both.low.tolist(), both.count.tolist(), both.stride.tolist(), both.repeat.tolist()
        ([0, 4], [2, 2], [4, 0], [3, 1])
        """
        taken = self.take(rows)
        indptr = taken.indptr[csr.running_total(lengths)]
        buffer = np.zeros(len(taken.low), dtype=np.int8)
        joined = compress(Pieces(indptr, buffer, taken.low, taken.count, *taken.pattern))
        pattern = (joined.stride, joined.repeat) if (joined.repeat > 1).any() else (None, None)
        return Regions(joined.indptr, joined.offset, joined.count, *pattern)

    def union(self, rows: Iterable[Ints | Sequence[int]]) -> Regions:
        """Return one row per list of rows, with the intervals of these rows in this order."""
        lists = [np.asarray(some, dtype=np.int64) for some in rows]
        taken = self.take(np.concatenate([np.zeros(0, dtype=np.int64), *lists]))
        ends = csr.running_total([len(some) for some in lists])
        return Regions(taken.indptr[ends], taken.low, taken.count, taken.stride, taken.repeat)

    def shifted(self, by: int) -> Regions:
        """Return the same rows, moved by `by` elements."""
        return Regions(self.indptr, self.low + by, self.count, self.stride, self.repeat)

    def merged(self) -> Regions:
        """Return the same rows, in which intervals without a gap between them are joined.

        Examples
        --------
        >>> Regions(np.array([0, 2, 3]), np.array([0, 4, 9]), np.array([4, 5, 1])).merged().low
        array([0, 9])
        """
        assert self.repeat is None, "only blocks of pairs lie at a stride"
        row = csr.row_numbers(self.indptr)
        follows = (self.low[:-1] + self.count[:-1] == self.low[1:]) & (row[:-1] == row[1:])
        first = np.flatnonzero(np.concatenate(([True], ~follows))[: len(self.low)])
        count = np.add.reduceat(self.count, first) if len(first) else self.count
        return Regions(csr.indptr_of(row[first], len(self)), self.low[first], count)

    def cut(self, parts: int, weights: Sequence[int] | None = None) -> Regions:
        """Cut every row into `parts` rows whose sizes differ by at most one element.

        With weights, the ends of the parts are in proportion to the sums of weights, rounded down.

        Parameters
        ----------
        parts : int
            Number of parts per row.
        weights : sequence of int, shape (parts,), optional
            Relative sizes of the parts.

        Examples
        --------
        >>> Regions.of(np.array([10]), np.array([7])).cut(3).low.tolist()
        [10, 13, 15]
        >>> Regions.of(np.array([0]), np.array([12])).cut(3, [1, 2, 1]).count.tolist()
        [3, 6, 3]
        """
        if parts == 1:
            return self
        if weights is None:
            share, rest = np.divmod(self.totals, parts)
            return self.into(share[:, None] + (np.arange(parts) < rest[:, None]))
        # These are Python integers, because products may exceed 64 bits.
        below = list(accumulate(weights))
        ends = [[total * some // below[-1] for some in below] for total in self.totals.tolist()]
        return self.into(np.diff(np.array(ends, dtype=np.int64).reshape(-1, parts), prepend=0))

    def into(self, sizes: Ints) -> Regions:
        """Cut every row into rows of the given sizes, whose sum is the row's number of elements.

        Parameters
        ----------
        sizes : ndarray of int64, shape (n_rows, n_parts)
        """
        assert self.repeat is None, "only blocks of pairs lie at a stride, and they are not cut"
        if self.is_single:
            displs = np.cumsum(sizes, axis=1) - sizes + self.low[:, None]
            return Regions.of(displs.ravel(), sizes.ravel())
        starts, bounds = csr.running_total(self.count), csr.running_total(sizes.ravel())
        edges = csr.sorted_unique(np.concatenate((starts, bounds)))
        begin, count = edges[:-1], np.diff(edges)
        interval, row = last_at_or_below(starts, begin), last_at_or_below(bounds, begin)
        low = self.low[interval] + begin - starts[interval] if len(begin) else begin
        return Regions(csr.indptr_of(row, sizes.size), low, count)


class PairTable(Regions):
    """Rows of `size` elements each, which are computed on demand.

    Row i begins at element ``first + i // divisor % modulus * unit``. An alltoall with blocks of
    the same size has a row per pair of ranks, which would be too many to store.

    Parameters
    ----------
    n_rows : int
        Number of rows. If tables are stacked, it must be a multiple of ``divisor * modulus``.
    size : int
        Number of elements per row.
    divisor, modulus : int
        Constants of the formula.
    first : int, optional
        First element of row 0.
    unit : int, optional
        Distance between the beginnings of blocks in elements, by default `size`.
    turns : (int, int), optional
        Stride and number of the intervals of each row, by default one interval.
    """

    def __init__(
        self,
        n_rows: int,
        size: int,
        divisor: int,
        modulus: int,
        *,
        first: int = 0,
        unit: int | None = None,
        turns: tuple[int, int] = (0, 1),
    ) -> None:
        fields: dict[str, object] = {
            "n_rows": n_rows,
            "size": size,
            "divisor": divisor,
            "modulus": modulus,
        }
        fields |= {"first": first, "unit": size if unit is None else unit, "turns": turns}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    n_rows: int
    size: int
    divisor: int
    modulus: int
    first: int
    unit: int
    turns: tuple[int, int]

    def __len__(self) -> int:
        return self.n_rows

    @property
    def key(self) -> tuple[object, ...]:
        """Return the fields that must be equal in tables that are stacked."""
        return self.size, self.divisor, self.modulus, self.first, self.unit, self.turns

    @property
    def is_plain(self) -> bool:
        """True if blocks are single intervals that follow each other from element 0."""
        return self.first == 0 and self.unit == self.size and self.turns[1] == 1

    def with_rows(self, n_rows: int) -> PairTable:
        """Return a table with another number of rows and otherwise the same fields."""
        ends = self.divisor, self.modulus
        return PairTable(
            n_rows, self.size, *ends, first=self.first, unit=self.unit, turns=self.turns
        )

    @cached_property
    def indptr(self) -> Ints:
        return np.arange(self.n_rows + 1)

    @cached_property
    def low(self) -> Ints:
        return self._begin(np.arange(self.n_rows))

    @cached_property
    def count(self) -> Ints:
        return np.broadcast_to(np.int64(self.size // self.turns[1]), (self.n_rows,))

    @cached_property
    def stride(self) -> Ints | None:
        return self._repeated(self.turns[0])

    @cached_property
    def repeat(self) -> Ints | None:
        return self._repeated(self.turns[1])

    def _repeated(self, number: int) -> Ints | None:
        return None if self.turns[1] == 1 else np.broadcast_to(np.int64(number), (self.n_rows,))

    @property
    def totals(self) -> Ints:
        """Number of elements of every row."""
        return np.broadcast_to(np.int64(self.size), (self.n_rows,))

    @property
    def largest(self) -> int:
        """Return the number of elements of the longest row; all rows have the same."""
        return self.size if self.n_rows else 0

    def _begin(self, rows: Ints) -> Ints:
        return self.first + rows // self.divisor % self.modulus * self.unit

    def take(self, rows: Ints) -> Regions:
        """Return the given rows, in the given order."""
        rows = np.asarray(rows)
        stride, n_turns = self.turns
        one = Regions.of(self._begin(rows), np.full(len(rows), self.size // n_turns))
        if n_turns == 1:
            return one
        turns = (np.full(len(rows), number) for number in (stride, n_turns))
        return Regions(one.indptr, one.low, one.count, *turns)
