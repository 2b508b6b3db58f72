"""Steps of all ranks that need no plan: turns, a communicator of our own, the end of the job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
FORWARDING_S: Final = 0.1
"""Time in seconds for launchers to forward output of ranks, as Hydra could otherwise end before."""
_SLEEP_S: Final = 5e-3
"""Sleep between polls of ranks that leave the cores to others."""


def first_alone(comm: MPI.Intracomm, make: Callable[[], T]) -> T:
    """Call `make` on rank 0, then on all other ranks; collective.

    The other ranks then find the machine code that rank 0 has compiled in the cache. Otherwise all
    ranks would compile the same code at the same time.
    """
    try:
        if comm.rank == 0:
            return make()
    finally:
        leave_cores(comm)
    return make()


def leave_cores(comm: MPI.Intracomm) -> None:
    """Sleep until all ranks have arrived, so that ranks at work can use the cores; collective."""
    arrived = comm.Ibarrier().Test
    while not arrived():
        time.sleep(_SLEEP_S)


def abort(comm: MPI.Intracomm, status: int, reason: str = "") -> None:
    """Abort all ranks, which could otherwise wait for this rank forever.

    Parameters
    ----------
    comm : MPI.Intracomm
    status : int
        Exit status of the job.
    reason : str
        Text that is written to standard error before the ranks are aborted.

    Notes
    -----
    MPICH's ``MPI_Abort`` returns when it has notified mpiexec.
    """
    sys.stdout.flush()
    sys.stderr.write(reason)
    sys.stderr.flush()
    time.sleep(FORWARDING_S)
    comm.Abort(status)


def own_communicator(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Return a communicator of the same ranks that the user does not know; collective.

    A duplicate would have the user's attributes copied, which calls the user's code. In MPICH
    5.0.2, the group of a Cartesian communicator contains ranks that the communicator does not.
    """
    return cast("MPI.Intracomm", comm.Split())
