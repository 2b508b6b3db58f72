"""Chunk layouts: where chunk i of a space lies, for every member of many groups at once.

Algorithms speak of chunks only. A layout turns runs of chunks into element
offsets and counts, so counts, remainders and per-rank sizes are settled here
and nowhere else. A *member* is a position of a group: with groups of `size`
ranks, member ``g * size + i`` is position i of group g.
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
"""Peak memory of an interval that a run of chunks lies in."""


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Places of runs of chunks, in elements.

    Parameters
    ----------
    index : ndarray or None
        Which run each interval belongs to, ascending; None where every run is
        one interval.
    offset, count : ndarray of int64
    stride, repeat : ndarray of int64 or None
        Where intervals repeat: how far apart, and how often.
    """

    index: Ints | None
    offset: Ints
    count: Ints
    stride: Ints | None = None
    repeat: Ints | None = None


class Layout(ABC):
    """The layout of the chunks of one space."""

    @property
    def unit(self) -> int | None:
        """Return the elements of every chunk if chunk i begins at i times that on all members."""
        return None

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """Return the number of chunks; runs wrap around modulo this."""

    @abstractmethod
    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        """Return where runs lie that do not wrap.

        Parameters
        ----------
        member, first, n : ndarray of int64, shape (m,)
            Whose space, the first chunk and how many chunks.
        """


@dataclass(frozen=True, eq=False)
class Listed(Layout):
    """Chunks listed as regions: chunk i of a member is row ``first_row[member] + i``.

    Parameters
    ----------
    regions : Regions
    first_row : ndarray of int64, shape (n_members,)
    size : int
        Chunks a member.
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
    """A layout of scratch: the chunks' sizes, group by group.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_groups, n_counts)
        Elements of every chunk.
    size : int
        Members of a group.
    """

    counts: Ints
    size: int

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1])

    def sized(self, counts: Ints) -> Self:
        """Return the same layout of chunks of other sizes."""
        return replace(self, counts=counts)


def _displs(counts: Ints) -> Ints:
    edge = np.zeros((len(counts), 1), dtype=np.int64)
    return np.hstack((edge, np.cumsum(counts, axis=1, dtype=np.int64)))


class Packed(Scratch):
    """Chunks one after another, the same on every member of a group."""

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
    """All chunks one after another several times: chunk i of turn t is ``t * n_counts + i``.

    Parameters
    ----------
    times : int
        How often.
    """

    times: int

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1]) * self.times

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(np.tile(self.counts, self.times))


class Rotated(Packed):
    """Slot s of position r holds chunk (r + s) mod n_chunks; slot 0 lies first."""

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(np.hstack((self.counts, self.counts)))

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        group, position = np.divmod(member, self.size)
        low = self._bounds[group, position + first]
        start = self._bounds[group, position]
        return Intervals(None, low - start, self._bounds[group, position + first + n] - low)


class Unlike(Scratch):
    """Chunks one after another, of other sizes at every position: a row of `counts` for each."""

    @cached_property
    def _bounds(self) -> Ints:
        return _displs(self.counts)

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        position = member % self.size
        low = self._bounds[position, first]
        return Intervals(None, low, self._bounds[position, first + n] - low)


@dataclass(frozen=True, eq=False)
class Padded(Unlike):
    """Chunks of sizes as of `Unlike`, chunk i at the begin of slot i mod `n_slots`.

    Parameters
    ----------
    n_slots, room : int
        Number of slots, and the elements of each. Runs are of chunks that fill theirs.
    """

    n_slots: int
    room: int

    def locate(self, member: Ints, first: Ints, n: Ints) -> Intervals:
        found = super().locate(member, first, n)
        return Intervals(None, first % self.n_slots * self.room, found.count)


@dataclass(frozen=True, eq=False)
class Slots(Scratch):
    """A few slots, each big enough for any chunk: index ``slot * n_counts + chunk``.

    Parameters
    ----------
    n_slots : int
        How many slots there are.
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
