"""Chunk layouts: where chunk i of a buffer lies, for every rank at once.

Algorithms speak of chunks only. A layout turns runs of chunks into element
offsets and counts, so counts, remainders and per-rank sizes are settled here
and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
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


class Layout:
    """Where the chunks of one buffer lie.

    Attributes
    ----------
    n_chunks : int
        Runs of chunks wrap around modulo this.
    """

    n_chunks: int

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return offset and count, in elements, of runs that do not wrap.

        Parameters
        ----------
        position, first, n : ndarray of int64, shape (m,)
            Whose buffer, the first chunk and how many chunks.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Packed(Layout):
    """Chunks one after another, the same on every rank.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_chunks,)
        Elements of every chunk.
    """

    counts: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_chunks", len(self.counts))
        object.__setattr__(self, "_displs", _prefix(self.counts))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        displs: Ints = self._displs  # type: ignore[attr-defined]
        return displs[first], displs[first + n] - displs[first]


@dataclass(frozen=True, eq=False)
class PackedByRank(Layout):
    """Chunks one after another, of sizes that differ from rank to rank.

    Parameters
    ----------
    counts : ndarray of int64, shape (size, n_chunks)
        Elements of every chunk on every rank: alltoallv's send counts.
    """

    counts: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_chunks", self.counts.shape[1])
        edge = np.zeros((len(self.counts), 1), dtype=np.int64)
        object.__setattr__(self, "_displs", np.hstack((edge, np.cumsum(self.counts, axis=1))))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        displs: Ints = self._displs  # type: ignore[attr-defined]
        low = displs[position, first]
        return low, displs[position, first + n] - low


@dataclass(frozen=True, eq=False)
class Own(Layout):
    """A buffer that holds one chunk only, whichever it is, at offset 0.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_chunks,)
        Elements of every chunk.
    """

    counts: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_chunks", len(self.counts))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(first), self.counts[first]


@dataclass(frozen=True, eq=False)
class Rotated(Layout):
    """Slot s of position r holds chunk (r + s) mod size; slot 0 lies first.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_chunks,)
        Elements of every chunk.
    """

    counts: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_chunks", len(self.counts))
        object.__setattr__(self, "_displs", _prefix(np.concatenate((self.counts, self.counts))))

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        displs: Ints = self._displs  # type: ignore[attr-defined]
        low = displs[position + first]
        return low - displs[position], displs[position + first + n] - low


@dataclass(frozen=True, eq=False)
class Slots(Layout):
    """A few slots, each big enough for any chunk: index ``slot * n_chunks + chunk``.

    Parameters
    ----------
    counts : ndarray of int64, shape (n,)
        Elements of every chunk that may be put into a slot.
    n_slots : int
        How many slots there are.
    """

    counts: Ints
    n_slots: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_chunks", len(self.counts) * self.n_slots)

    def locate(self, position: Ints, first: Ints, n: Ints) -> tuple[Ints, Ints]:
        slot, chunk = np.divmod(first, len(self.counts))
        return slot * self.counts.max(initial=0), self.counts[chunk]
