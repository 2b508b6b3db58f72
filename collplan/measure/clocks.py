"""What ranks' clocks show at the same moment: one clock on one host, estimates between hosts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.host.cores import host

EXCHANGES: Final = 20
"""Messages to and fro between two clocks; the fastest tells."""
_NAMESPACE: Final = Path("/proc/self/ns/time")


class Offset(NamedTuple):
    """How far a clock is ahead of rank 0's, and by how much that may be wrong, in ns."""

    ahead_ns: int
    error_ns: int


def clock_name() -> str:
    """Name the clock of this process: processes of one name read the same monotonic clock."""
    # Linux counts from the boot, unless a namespace of its own shifts that.
    namespace = os.readlink(_NAMESPACE) if _NAMESPACE.is_symlink() else ""
    return f"{host()} {namespace}"


def share_clock(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks read the same monotonic clock.

    Collective on the first call for a communicator; the answer is kept on it.
    """
    known = comm.Get_attr(_keyval())
    if known is None:
        known = len(set(comm.allgather(clock_name()))) == 1
        comm.Set_attr(_keyval(), known)
    return bool(known)


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval()


class Clocks:
    """The clocks of a communicator's ranks; making one is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    name : str, optional
        Which clock this rank reads.
    now : callable
        Reads it, in ns.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        name: str | None = None,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._comm = comm
        self._now = now
        names = comm.allgather(clock_name() if name is None else name)
        first = {name: rank for rank, name in reversed(list(enumerate(names)))}
        self._readers = sorted(first.values())
        self._own = self._readers.index(first[names[comm.rank]])

    def offset(self) -> Offset:
        """Return how far this rank's clock is ahead of rank 0's; collective.

        Rank 0 sends a message to one reader of each other clock and takes what
        the answer says for the middle of the time until it is back. The answer
        was given in between, so half that time is the most it can be wrong.
        """
        if len(self._readers) == 1:
            return Offset(0, 0)
        found = [Offset(0, 0)]
        if self._comm.rank == 0:
            found += [self._ask(reader) for reader in self._readers[1:]]
        elif self._comm.rank in self._readers:
            self._answer()
        return Offset(*self._comm.bcast(found)[self._own])

    def _ask(self, reader: int) -> Offset:
        shown = np.zeros(1, dtype=np.int64)
        found = []
        for _ in range(EXCHANGES):
            sent = self._now()
            self._comm.Send(shown, dest=reader)
            self._comm.Recv(shown, source=reader)
            back = self._now()
            found.append(Offset(int(shown[0]) - (sent + back) // 2, (back - sent + 1) // 2))
        return min(found, key=lambda offset: offset.error_ns)

    def _answer(self) -> None:
        shown = np.zeros(1, dtype=np.int64)
        for _ in range(EXCHANGES):
            self._comm.Recv(shown, source=0)
            shown[0] = self._now()
            self._comm.Send(shown, dest=0)
