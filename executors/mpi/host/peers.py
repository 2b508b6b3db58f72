"""The processes behind a communicator's ranks: which of them have ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import groupby

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.host.cores import host
from collplan.executors.mpi.host.processes import stat_of


class Peers:
    """Processes of a communicator's ranks, and whether they live as far as this one can see.

    Collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Whose ranks.
    wait : callable
        How to wait for all of them.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Callable[[MPI.Request], object]) -> None:
        self._place = _place()
        mine = np.array([self._place, os.getpid(), stat_of(os.getpid())[1]], dtype=np.uint64)
        self._all: npt.NDArray[np.uint64] = np.empty((comm.size, 3), dtype=np.uint64)
        wait(comm.Iallgather(mine, self._all))

    def pid(self, rank: int) -> int:
        """Return a rank's process id."""
        return int(self._all[rank, 1])

    def ended(self, ranks: Iterable[int]) -> list[int]:
        """Return those of some ranks whose processes on this machine are over."""
        return [rank for rank in ranks if self._has_ended(rank)]

    def all_ended(self) -> list[int]:
        """Return all ranks whose processes on this machine are over."""
        return self.ended(range(len(self._all)))

    def _has_ended(self, rank: int) -> bool:
        place, pid, beginning = (int(value) for value in self._all[rank])
        # Elsewhere, numbers of processes mean others.
        return place == self._place and stat_of(pid)[1] != beginning


def name_ranks(ranks: Iterable[int], most: int = 6) -> str:
    """Name ranks in words, neighbours as ranges.

    Parameters
    ----------
    ranks : iterable of int
        In any order.
    most : int
        How many ranges are named.

    Examples
    --------
    >>> name_ranks([3])
    'rank 3'
    >>> name_ranks([0, 1, 2, 5])
    'ranks 0 to 2 and 5'
    """
    ordered = sorted(set(ranks))
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    ]
    words: list[str] = []
    for run in runs[:most]:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(rank) for rank in run]
    left = sum(len(run) for run in runs[most:])
    if left:
        words.append(f"{left} more")
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"rank{'s' if len(ordered) > 1 else ''} {text}"


def _place() -> int:
    """Return what processes have in common that see each other: a kernel and its numbering."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbering = str(os.getpid())
    digest = blake2b(f"{host()} {numbering}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")
