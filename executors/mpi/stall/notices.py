"""Empty messages by which ranks that wait tell each other that they do."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mpi4py import MPI


class Notices:
    """Who of a communicator has said that it waits.

    Parameters
    ----------
    comm : MPI.Intracomm
        Where; its largest tag must be free, at least once it is clear that
        what it was made for has failed.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._tag = largest_tag(comm)
        self._sent: list[MPI.Request] = []
        self.heard: set[int] = set()

    def send(self, ranks: Iterable[int]) -> None:
        """Tell ranks; whether it arrives is nobody's concern, the job is about to end."""
        for rank in ranks:
            try:
                self._sent.append(self._comm.Isend([None, 0, MPI.BYTE], rank, self._tag))
            except MPI.Exception:
                # Some libraries know that the other process is gone.
                continue

    def collect(self) -> bool:
        """Take what has come; return whether anything has."""
        status = MPI.Status()
        n_before = len(self.heard)
        while self._comm.Iprobe(MPI.ANY_SOURCE, self._tag, status):
            source = status.Get_source()
            self._comm.Recv([None, 0, MPI.BYTE], source, self._tag)
            self.heard.add(source)
        return len(self.heard) > n_before

    def collect_for(self, seconds: float, *, enough: int) -> None:
        """Take what comes within some seconds, or until so many ranks have been heard."""
        end = time.monotonic() + seconds
        while len(self.heard) < enough and time.monotonic() < end:
            self.collect()
            time.sleep(0.01)


def largest_tag(comm: MPI.Intracomm) -> int:
    """Return the largest tag of this MPI; the standard promises 32767."""
    limit = comm.Get_attr(MPI.TAG_UB)
    return 32767 if limit is None else int(limit)


def spread(rank: int, size: int) -> set[int]:
    """Return ranks at distances of powers of two: by them, all hear of a thing in log2 steps."""
    distances = [1 << k for k in range(max(1, (size - 1).bit_length()))]
    around = {(rank + step) % size for step in distances}
    return (around | {(rank - step) % size for step in distances}) - {rank}
