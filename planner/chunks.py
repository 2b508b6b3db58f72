"""Chunk layouts: where chunk i of a buffer lies, for every rank at once.

Algorithms speak of chunks only. A layout turns runs of chunks into element
offsets and counts, so counts, remainders and per-rank sizes are settled here
and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]


def split_evenly(count: int, parts: int) -> Ints:
    """Cut `count` elements into `parts` chunks whose sizes differ by at most one.

    Examples
    --------
    >>> split_evenly(7, 3).tolist()
    [3, 2, 2]
    """
    sizes = np.full(parts, count // parts, dtype=np.int64)
    sizes[: count % parts] += 1
    return sizes


def _prefix(counts: Ints) -> Ints:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))


class Layout(ABC):
    """Where the chunks of one buffer lie."""

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """Return the number of chunks; runs wrap around modulo this."""

    @abstractmethod
    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return offset and count, in elements, of runs that do not wrap.

        Parameters
        ----------
        position, first, n : ndarray of int64, shape (m,)
            Whose buffer, the first chunk and how many chunks.
        """


@dataclass(frozen=True, eq=False)
class _Counted(Layout):
    """A layout of chunks whose sizes are the same on every rank.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_chunks,)
        Elements of every chunk.
    """

    counts: Ints

    @property
    def n_chunks(self) -> int:
        return len(self.counts)


class Packed(_Counted):
    """Chunks one after another, the same on every rank."""

    @cached_property
    def _displs(self) -> Ints:
        return _prefix(self.counts)

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        low = self._displs[first]
        return low, self._displs[first + n] - low


class Own(_Counted):
    """A buffer that holds one chunk only, whichever it is, at offset 0."""

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(first), self.counts[first]


class Rotated(_Counted):
    """Slot s of position r holds chunk (r + s) mod n_chunks; slot 0 lies first."""

    @cached_property
    def _displs(self) -> Ints:
        return _prefix(np.concatenate((self.counts, self.counts)))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        low = self._displs[position + first]
        return low - self._displs[position], self._displs[position + first + n] - low


@dataclass(frozen=True, eq=False)
class Slots(_Counted):
    """A few slots, each big enough for any chunk: index ``slot * n_counts + chunk``.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_counts,)
        Elements of every chunk that may be put into a slot.
    n_slots : int
        How many slots there are.
    """

    n_slots: int

    @property
    def n_chunks(self) -> int:
        return len(self.counts) * self.n_slots

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        slot, chunk = np.divmod(first, len(self.counts))
        return slot * self.counts.max(initial=0), self.counts[chunk]


@dataclass(frozen=True, eq=False)
class PackedByRank(Layout):
    """Chunks one after another, of sizes that differ from rank to rank.

    Parameters
    ----------
    counts : ndarray of int64, shape (size, n_chunks)
        Elements of every chunk on every rank: alltoallv's send counts.
    """

    counts: Ints

    @property
    def n_chunks(self) -> int:
        return int(self.counts.shape[1])

    @cached_property
    def _displs(self) -> Ints:
        edge = np.zeros((len(self.counts), 1), dtype=np.int64)
        return np.hstack((edge, np.cumsum(self.counts, axis=1)))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        low = self._displs[position, first]
        return low, self._displs[position, first + n] - low
