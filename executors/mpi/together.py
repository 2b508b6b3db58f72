"""Steps that all ranks take together: they succeed on all ranks, or fail on all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from collplan.executors.mpi.host.waiting import Wait
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
FORWARDING_S: Final = 0.1
"""Time in seconds for launchers to forward what a rank has written: Hydra may end before."""
_SLEEP_S: Final = 0.01
"""Longest sleep of ranks that leave their cores to the first one."""


def together(
    comm: MPI.Intracomm, make: Callable[[], T], kind: type[CollplanError] = CollplanError
) -> T:
    """Return what `make` returns; where it fails on one rank, all ranks raise; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        All ranks that call `make`.
    make : callable
        The step. It may be collective, if it fails on a rank only after its last collective call.
    kind : type of CollplanError
        Errors that `make` may raise, and the one to raise on all ranks.

    Raises
    ------
    CollplanError
        The error of the first rank that failed.
    """
    made, error = None, None
    try:
        made = make()
    except kind as caught:
        error = str(caught)
    errors = [text for text in comm.allgather(error) if text is not None]
    if errors:
        raise kind(errors[0])
    return cast("T", made)


def first_alone(comm: MPI.Intracomm, make: Callable[[], T]) -> T:
    """Call `make` on rank 0, then on all other ranks; collective.

    What rank 0 had to compile to machine code the others then find in the
    cache; at once, all would compile the same, and share cores for it.
    """
    try:
        if comm.rank == 0:
            return make()
    finally:
        if comm.size > 1:
            # Rank 0 has the core meanwhile.
            request, wait = comm.Ibarrier(), Wait(_SLEEP_S)
            while not request.Test():
                wait.pause()
    return make()


def abort(comm: MPI.Intracomm, status: int, reason: str = "") -> None:
    """End all ranks, which could wait for this one for ever.

    Parameters
    ----------
    comm : MPI.Intracomm
    status : int
        The job's exit status.
    reason : str
        Text to write to standard error before.

    Notes
    -----
    MPICH's ``MPI_Abort`` returns when it has told mpiexec.
    """
    sys.stdout.flush()
    sys.stderr.write(reason)
    sys.stderr.flush()
    time.sleep(FORWARDING_S)
    comm.Abort(status)
