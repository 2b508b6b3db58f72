"""Chunk layouts: the place of chunk i of a space, for every member of many groups at once.

Algorithms name only chunks. A layout turns runs of chunks into element offsets
and counts. Therefore only layouts depend on counts, remainders, and sizes per
rank. A *member* is a position of a group: with groups of `size` ranks, member
``g * size + i`` is position i of group g.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.blueprint.regions import Regions
from collplan.planner.memory import require_memory

BYTES_PER_INTERVAL: Final = 64
"""Peak memory in bytes per interval that contains chunks of a run."""


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Places of runs of chunks: one or several intervals of elements per run.

    Parameters
    ----------
    index : ndarray or None
        Number of the run to which each interval belongs, ascending; None if every
        run is one interval.
    offset, count : ndarray of int64
        First element and number of elements of each interval.
    stride, repeat : ndarray of int64 or None
        Distance in elements between repetitions of each interval, and their number;
        None if no interval repeats.
    """

    index: Ints | None
    offset: Ints
    count: Ints
    stride: Ints | None = None
    repeat: Ints | None = None


class Layout(ABC):
    """Layout of the chunks of one space."""

    @property
    def unit(self) -> int | None:
        """Return the elements per chunk if chunk i begins at i times this number on all members.

        Otherwise, return None.
        """
        return None

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """Return the number of chunks, modulo which runs wrap around."""

    @abstractmethod
    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        """Return the places of runs that do not wrap around.

        Parameters
        ----------
        member, first, n : ndarray of int64, shape (m,)
            Member whose space the run lies in, first chunk, and number of chunks.
        """


@dataclass(frozen=True, eq=False)
class Listed(Layout):
    """Chunks listed as regions: chunk i of a member is row ``first_row[member] + i``.

    Parameters
    ----------
    regions : Regions
        Intervals of every chunk.
    first_row : ndarray of int64, shape (n_members,)
        Row of the first chunk of every member.
    size : int
        Number of chunks per member.
    """

    regions: Regions
    first_row: Ints
    size: int

    @property
    def n_chunks(self) -> int:
        return self.size

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        low_row = self.first_row[member] + first
        regions = self.regions
        if regions.is_packed:
            low = regions.low[np.minimum(low_row, len(regions.low) - 1)]
            last = np.maximum(low_row + n - 1, 0)
            end = regions.low[last] + regions.count[last]
            return Intervals(None, low, np.where(n > 0, end - low, 0))
        begin = regions.indptr[low_row]
        lengths = regions.indptr[low_row + n] - begin
        require_memory(int(lengths.sum()) * BYTES_PER_INTERVAL)
        index, interval = np.repeat(np.arange(len(first)), lengths), csr.ranges(begin, lengths)
        ends = index, regions.low[interval], regions.count[interval]
        if regions.stride is None or regions.repeat is None:
            return Intervals(*ends)
        return Intervals(*ends, regions.stride[interval], regions.repeat[interval])


@dataclass(frozen=True, eq=False)
class Scratch(Layout):
    """Base class of layouts of scratch, which depend only on the sizes of chunks.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_groups, n_counts)
        Number of elements of every chunk.
    size : int
        Number of members per group.
    """

    counts: Ints
    size: int

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1])

    def sized(self, counts: Ints) -> Self:
        """Return the same layout with other sizes of chunks."""
        return replace(self, counts=counts)


def _displs(counts: Ints) -> Ints:
    edge = np.zeros((len(counts), 1), dtype=np.int64)
    return np.hstack((edge, np.cumsum(counts, axis=1, dtype=np.int64)))


class Packed(Scratch):
    """Chunks one after another, at the same offsets on every member of a group."""

    @cached_property
    def unit(self) -> int | None:
        is_alike = self.counts.size > 0 and bool((self.counts == self.counts.flat[0]).all())
        return int(self.counts.flat[0]) if is_alike else None

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(self.counts)

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        group = member // self.size
        low = self._bounds[group, first]
        return Intervals(None, low, self._bounds[group, first + n] - low)


@dataclass(frozen=True, eq=False)
class Repeated(Packed):
    """Several copies of all chunks, one after another: chunk i of copy t is ``t * n_counts + i``.

    Parameters
    ----------
    times : int
        Number of copies.
    """

    times: int

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1]) * self.times

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(np.tile(self.counts, self.times))


class Rotated(Packed):
    """Rotated chunks: slot s of position r holds chunk (r + s) mod n_chunks; slot 0 is first."""

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(np.hstack((self.counts, self.counts)))

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        group, position = np.divmod(member, self.size)
        low = self._bounds[group, position + first]
        start = self._bounds[group, position]
        return Intervals(None, low - start, self._bounds[group, position + first + n] - low)


class Unlike(Scratch):
    """Chunks one after another, of sizes that may differ per position: row i of `counts` for i.

    A single row serves all positions.
    """

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(self.counts)

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        position = member % len(self.counts)
        low = self._bounds[position, first]
        return Intervals(None, low, self._bounds[position, first + n] - low)


@dataclass(frozen=True, eq=False)
class Slots(Scratch):
    """Slots that are each large enough for any chunk, with index ``slot * n_counts + chunk``.

    Parameters
    ----------
    n_slots : int
        Number of slots.
    """

    n_slots: int

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1]) * self.n_slots

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        group = member // self.size
        slot, chunk = np.divmod(first, self.counts.shape[1])
        room = self.counts.max(axis=1, initial=0)
        return Intervals(None, slot * room[group], self.counts[group, chunk])
