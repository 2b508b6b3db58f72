"""Compute while a thread on another core makes a collective's progress.

    mpiexec -n 2 python examples/overlap_bind.py

Two processors are enough: rank 0 computes on the first, and all communication, as well as
rank 1, is on the second. Neither rank calls the plan between its start and its wait.
"""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI

import collplan

COUNT = 2**20  # 8 MiB of float64
N_STARTS = 20


def main() -> None:
    """Sum vectors of all ranks while rank 0 computes."""
    comm = MPI.COMM_WORLD
    n_cores = 2 * comm.size
    spec = collplan.parse_spec(
        {
            "machine": {"ranks_per_node": comm.size, "cores": n_cores},
            "collective": {"kind": "allreduce", "count": COUNT, "datatype": "float64"},
            "passes": [{"name": "place_progress"}],
        }
    )
    plan = collplan.compile(spec, comm=comm)
    usable = sorted(set().union(*comm.allgather(os.sched_getaffinity(0))))
    first, second = usable[0], usable[-1]
    os.sched_setaffinity(0, {first if comm.rank == 0 else second})
    # The processor of every core of the plan's node: several cores may share one.
    cores = [first if core == plan.rank_core[0] else second for core in range(n_cores)]
    sendbuf, recvbuf = np.empty(COUNT), np.empty(COUNT)
    field = np.random.default_rng(comm.rank).random(20_000)
    times = np.empty((3, N_STARTS))
    with collplan.bind(plan, comm, sendbuf, recvbuf, cores=cores) as allreduce:

        def run(communicates: bool, computes: bool) -> float:
            comm.Barrier()
            begin = MPI.Wtime()
            if communicates:
                allreduce.start()  # the thread takes it from here
            if computes and comm.rank == 0:
                for _ in range(100):
                    np.sqrt(field, out=field)
            if communicates:
                allreduce.wait()  # sleeps until the thread is done
            return MPI.Wtime() - begin

        for start in range(N_STARTS):
            sendbuf[:] = comm.rank + start
            times[:, start] = run(True, False), run(False, True), run(True, True)
            expected = sum(range(comm.size)) + comm.size * start
            assert (recvbuf == expected).all(), f"rank {comm.rank}: {recvbuf[0]} is not {expected}"
        progress = allreduce.progress
    if comm.rank == 0:
        alone, computing, both = np.median(times, axis=1) * 1e3
        print(f"{N_STARTS} allreduces on {comm.size} ranks are right, progress by {progress};")
        print(f"alone {alone:.2f} ms, computing {computing:.2f} ms, together {both:.2f} ms")


if __name__ == "__main__":
    main()
