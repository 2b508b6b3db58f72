"""Which processors ranks may use, and how a thread stays on one."""

from __future__ import annotations

import os

from mpi4py import MPI

from collplan.executors.mpi.host.cores import affinity
from collplan.specs.errors import CollplanError


def usable_processors(comm: MPI.Intracomm) -> list[int]:
    """Return the processors that any rank of a node may use, ascending; collective."""
    return sorted(set().union(*comm.allgather(affinity())))


def pin_thread(processor: int) -> None:
    """Let the calling thread, and those it starts from now on, use one processor only.

    Raises
    ------
    CollplanError
        If the system does not allow it.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise CollplanError("threads cannot be kept on a processor on this system; Linux does that")
    try:
        os.sched_setaffinity(0, {processor})
    except OSError as error:
        raise CollplanError(
            f"processor {processor}: the thread cannot be kept there: {error.strerror}; "
            f"start the ranks without limits on their processors"
        ) from None
