"""Threads that wait for a rank that never starts, and MPIs that let one thread in."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from mpi4py import MPI

import collplan

case = sys.argv[1]
comm = MPI.COMM_WORLD
PROCESSORS = [0] * (comm.size + 1)


def bound_bcast(
    transport: str, timeout_s: float | None = None, progress: str = "auto"
) -> tuple[np.ndarray, collplan.BoundPlan]:
    """Bind a broadcast from rank 0 whose background has a core of its own."""
    spec = {
        "machine": {"ranks_per_node": comm.size, "cores": comm.size + 1},
        "collective": {"kind": "bcast", "count": 500, "datatype": "int32"},
        "transport": transport,
        "passes": [{"name": "place_progress"}],
    }
    vector = np.zeros(500, np.int32)
    plan = collplan.compile(collplan.parse_spec(spec), rank=comm.rank)
    bound = collplan.bind(
        plan, comm, None, vector, timeout_s=timeout_s, progress=progress, cores=PROCESSORS
    )
    return vector, bound


def stalls() -> None:
    """The root does not start, which those say who wait for their threads."""
    _, bound = bound_bcast("messages", timeout_s=10, progress="thread")
    bound()
    if comm.rank == 0:
        time.sleep(600)
    bound.start()
    bound.wait()


def few_may_call_mpi() -> None:
    """Threads that do not call MPI may run, whatever level it was initialized with."""
    vector, bound = bound_bcast("messages")
    found = (MPI.THREAD_MULTIPLE, "thread", None)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        level = os.environ["MPI4PY_RC_THREAD_LEVEL"].upper()
        why = f"MPI was initialized with MPI_THREAD_{level}, the background needs "
        found = (MPI.Query_thread(), "caller", why + "MPI_THREAD_MULTIPLE")
    assert found == (MPI.Query_thread(), bound.progress, bound.why_caller), bound.why_caller
    shared, other = bound_bcast("shared", progress="thread")
    for start in range(1, 100):
        vector[:] = shared[:] = start if comm.rank == 0 else -1
        bound.start()
        other.start()
        bound.wait()
        other.wait()
        assert (vector == start).all()
        assert (shared == start).all()
    bound.free()
    other.free()


{
    "stalls": stalls,
    "few_may_call_mpi": few_may_call_mpi,
}[case]()
if comm.rank == 0:
    print(f"passed: {case}, thread level {MPI.Query_thread() - MPI.THREAD_SINGLE}", flush=True)
