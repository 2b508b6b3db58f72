"""Plans that share memory inside a node beside the library's own collectives.

    mpiexec -n 4 python benchmarks/shared_memory.py [bytes] [repetitions]

Plain buffers, buffers of the plan's own, and the native call, in interleaved rounds.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.measure.timing import library_name, time_in_turns
from collplan.planner import compile_plan
from collplan.specs.loading import parse_spec

CASES = (
    ("allreduce", "linear", ()),
    ("allreduce", "linear", (65536,)),
    ("bcast", "linear", ()),
    ("bcast", "linear", (65536,)),
    ("allgather", "linear", ()),
    ("allgather", "linear", (65536,)),
)
"""Collective, algorithm, segments."""


def native(kind: str, comm: MPI.Intracomm, sendbuf: Any, recvbuf: Any) -> Any:
    """Return the library's call on its own buffers."""
    if kind == "allreduce":
        return lambda: comm.Allreduce(sendbuf, recvbuf)
    if kind == "bcast":
        return lambda: comm.Bcast(recvbuf)
    return lambda: comm.Allgather(sendbuf, recvbuf)


def bound_plan(comm: MPI.Intracomm, kind: str, algorithm: str, segments: Any, n: int) -> BoundPlan:
    """Return a plan without buffers."""
    count = n // comm.size if kind == "allgather" else n
    passes = [{"name": "segment", "max_bytes": size} for size in segments]
    spec = parse_spec(
        {
            "machine": {"ranks_per_node": comm.size},
            "collective": {"kind": kind, "count": count, "datatype": "float32"},
            "algorithms": algorithm,
            "transport": "shared",
            "passes": passes,
        }
    )
    return bind(compile_plan(spec, rank=comm.rank), comm)


def main() -> None:
    comm = MPI.COMM_WORLD
    n_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 2**20
    repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    if comm.rank == 0:
        print(f"{library_name()}, {comm.size} ranks, {n_bytes} bytes; medians in µs")
        print(f"{'':36}   native    plain   ratio allocated ratio")
    for kind, algorithm, segments in CASES:
        bounds = [bound_plan(comm, kind, algorithm, segments, n_bytes // 4) for _ in range(2)]
        sendbuf, recvbuf = (np.ones_like(buffer) for buffer in bounds[1].allocate())
        bounds[0].rebind(sendbuf, recvbuf)
        theirs = native(kind, comm, np.ones_like(sendbuf), np.ones_like(recvbuf))
        times = time_in_turns(comm, [theirs, *bounds], repetitions) * 1e6
        if comm.rank == 0:
            library, plain, own = np.median(times, axis=1)
            name = f"{kind} {algorithm} {' '.join(map(str, segments))}"
            print(
                f"{name:36} {library:8.1f} {plain:8.1f} {plain / library:7.2f} "
                f"{own:8.1f} {own / library:7.2f}",
                flush=True,
            )
        for bound in bounds:
            bound.free()


if __name__ == "__main__":
    main()
