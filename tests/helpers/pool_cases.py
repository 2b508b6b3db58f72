"""Cases for the pool's own tests: right, wrong, and ended in every way."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI


def sums(comm: MPI.Intracomm, count: int) -> None:
    got = np.empty(count)
    comm.Allreduce(np.full(count, comm.rank + 1.0), got)
    assert (got == comm.size * (comm.size + 1) / 2).all()


def fails_on_rank_1(comm: MPI.Intracomm) -> None:
    assert comm.rank != 1, "rank 1 is wrong"
    comm.Barrier()


def fails_everywhere(comm: MPI.Intracomm) -> None:
    raise KeyError(f"rank {comm.rank}")


def hangs(comm: MPI.Intracomm) -> None:
    if comm.rank == 0:
        time.sleep(1000)
    comm.Barrier()


def is_killed(comm: MPI.Intracomm) -> None:
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()


def aborts(comm: MPI.Intracomm) -> None:
    if comm.rank == 1:
        comm.Abort(3)
    comm.Barrier()


def leaves_a_thread(comm: MPI.Intracomm) -> None:
    vars(sys.modules["__main__"])["THREADS_S"] = 0.1
    threading.Thread(target=time.sleep, args=(1000,), name="forgotten", daemon=True).start()
