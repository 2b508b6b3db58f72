"""One rank of a pool: run cases that the tests' process sends, until it sends no more."""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Client
from typing import Any

from mpi4py import MPI

THREADS_S = 5.0
"""Seconds that threads of a case get to end after it."""
PERMANENT = {"collplan flights"}
"""Threads that sleep until their process ends: that of all non-blocking calls."""


def run_case(module: str, name: str, n_ranks: int, arguments: dict[str, Any]) -> str | None:
    """Run a case on the first ranks of the world; return the traceback if it fails."""
    before = set(threading.enumerate())
    group = MPI.COMM_WORLD.Get_group().Incl(range(n_ranks))
    comm = MPI.COMM_WORLD.Create_group(group)
    try:
        getattr(importlib.import_module(module), name)(comm=comm, **arguments)
    except BaseException:
        return traceback.format_exc()
    comm.Barrier()
    comm.Free()
    group.Free()
    end = time.monotonic() + THREADS_S
    while left := {one.name for one in threading.enumerate() if one not in before} - PERMANENT:
        if time.monotonic() > end:
            return f"threads are still running: {', '.join(left)}"
        time.sleep(0.01)
    return None


def main() -> None:
    """Connect to the tests' process, and serve it."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    connection = Client(sys.argv[1], "AF_UNIX")
    connection.send((MPI.COMM_WORLD.rank, os.getpid()))
    while (case := connection.recv()) is not None:
        connection.send(run_case(*case))


if __name__ == "__main__":
    main()
