"""The collectives of the engine's benchmark as people write them with mpi4py.

Each is a list of steps on slices of a buffer, run in two ways: by blocking calls,
and by persistent requests made beforehand. Blocks of a vector are as equal as can
be, roots are rank 0, everything is in place but alltoall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Array = npt.NDArray[Any]


class Step(NamedTuple):
    """A message out and one in, either to or from nobody; what comes in may be added."""

    sent: slice = slice(0)
    dest: int = MPI.PROC_NULL
    received: slice = slice(0)
    source: int = MPI.PROC_NULL
    adds: bool = False


def ring_allreduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Pass partial sums on round the ring, then the sums."""
    bounds = [count * block // size for block in range(size + 1)]
    for turn in range(2 * (size - 1)):
        sent, received = (rank - turn) % size, (rank - turn - 1) % size
        yield Step(
            slice(bounds[sent], bounds[sent + 1]),
            (rank + 1) % size,
            slice(bounds[received], bounds[received + 1]),
            (rank - 1) % size,
            turn < size - 1,
        )


def binomial_bcast(rank: int, size: int, count: int) -> Iterator[Step]:
    """Receive from the parent, then send to the children, the farthest first."""
    whole = slice(count)
    distance = 1
    while distance < size and not rank & distance:
        distance *= 2
    if rank:
        yield Step(received=whole, source=rank - distance)
    while distance > 1:
        distance //= 2
        if rank + distance < size:
            yield Step(sent=whole, dest=rank + distance)


def pairwise_alltoall(rank: int, size: int, count: int) -> Iterator[Step]:
    """Exchange blocks with one partner after the other."""
    is_power_of_two = size & (size - 1) == 0
    for turn in range(1, size):
        dest = rank ^ turn if is_power_of_two else (rank + turn) % size
        source = dest if is_power_of_two else (rank - turn) % size
        yield Step(_block(dest, count), dest, _block(source, count), source)


def ring_allgather(rank: int, size: int, count: int) -> Iterator[Step]:
    """Pass blocks on round the ring."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for turn in range(size - 1):
        sent, received = (rank - turn) % size, (rank - turn - 1) % size
        yield Step(_block(sent, count), right, _block(received, count), left)


STEPS: Final[dict[str, Callable[[int, int, int], Iterator[Step]]]] = {
    "allreduce": ring_allreduce,
    "bcast": binomial_bcast,
    "alltoall": pairwise_alltoall,
    "allgather": ring_allgather,
}


class ByHand:
    """A collective by blocking calls on slices.

    Parameters
    ----------
    kind : str
        One of `STEPS`.
    comm : MPI.Intracomm
        The ranks.
    count : int
        Elements of the vector, or of a block.
    sendbuf, recvbuf : ndarray
        Of which alltoall alone uses the first.
    """

    def __init__(
        self, kind: str, comm: MPI.Intracomm, count: int, sendbuf: Array, recvbuf: Array
    ) -> None:
        self._comm, self._recvbuf = comm, recvbuf
        self._sendbuf = sendbuf if kind == "alltoall" else recvbuf
        self._own = _block(comm.rank, count) if kind == "alltoall" else slice(0)
        self._steps = list(STEPS[kind](comm.rank, comm.size, count))
        longest = max((len(recvbuf[step.received]) for step in self._steps if step.adds), default=0)
        self._partial = np.zeros(longest, recvbuf.dtype)

    def __call__(self) -> None:
        """Compute the collective."""
        comm, sendbuf, recvbuf = self._comm, self._sendbuf, self._recvbuf
        recvbuf[self._own] = sendbuf[self._own]
        for step in self._steps:
            target = recvbuf[step.received]
            incoming = self._partial[: len(target)] if step.adds else target
            comm.Sendrecv(sendbuf[step.sent], step.dest, 0, incoming, step.source)
            if step.adds:
                target += incoming


class ByPersistentRequests(ByHand):
    """The same by persistent requests, with everything sliced beforehand."""

    def __init__(
        self, kind: str, comm: MPI.Intracomm, count: int, sendbuf: Array, recvbuf: Array
    ) -> None:
        super().__init__(kind, comm, count, sendbuf, recvbuf)
        self._requests: list[list[MPI.Prequest]] = []
        self._sums: list[tuple[Array, Array] | None] = []
        for step in self._steps:
            target = recvbuf[step.received]
            incoming = self._partial[: len(target)] if step.adds else target
            requests = []
            if step.source != MPI.PROC_NULL:
                requests.append(comm.Recv_init(incoming, step.source))
            if step.dest != MPI.PROC_NULL:
                requests.append(comm.Send_init(self._sendbuf[step.sent], step.dest))
            self._requests.append(requests)
            self._sums.append((target, incoming) if step.adds else None)

    def __call__(self) -> None:
        """Compute the collective."""
        self._recvbuf[self._own] = self._sendbuf[self._own]
        for requests, summed in zip(self._requests, self._sums, strict=True):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            if summed is not None:
                np.add(summed[0], summed[1], out=summed[0])

    def free(self) -> None:
        """Free the requests."""
        for requests in self._requests:
            for request in requests:
                request.Free()


def _block(rank: int, count: int) -> slice:
    return slice(rank * count, (rank + 1) * count)
