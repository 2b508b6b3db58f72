"""The end of a job by one of its ranks."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mpi4py import MPI

FORWARDING_S: Final = 0.1
"""Time in seconds for launchers to forward what a rank has written: Hydra may end before."""


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
