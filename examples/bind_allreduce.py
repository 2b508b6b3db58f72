"""Bind a plan once, start it many times, and compute while it runs.

    mpiexec -n 4 python examples/bind_allreduce.py

Any number of ranks. Use the mpiexec of mpi4py's MPI: ``collplan doctor`` says
which one that is.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import collplan

COUNT = 100_000
N_STARTS = 5
N_BLOCKS = 50


def main() -> None:
    """Sum vectors of all ranks, with work of our own in between."""
    comm = MPI.COMM_WORLD
    spec = collplan.parse_spec(
        {
            "machine": {"ranks_per_node": comm.size},
            "collective": {"kind": "allreduce", "count": COUNT, "datatype": "float64"},
            "algorithms": "rabenseifner",
            "passes": [{"name": "segment", "max_bytes": "64KiB"}],
        }
    )
    plan = collplan.compile(spec, comm=comm)  # this rank's program
    sendbuf, recvbuf = np.empty(COUNT), np.empty(COUNT)
    field = np.random.default_rng(comm.rank).random((N_BLOCKS, 20_000))
    n_overlapped = 0
    with collplan.bind(plan, comm, sendbuf, recvbuf) as allreduce:
        for start in range(N_STARTS):
            sendbuf[:] = comm.rank + start
            allreduce.start()  # from here to completion the buffers are the plan's
            done = False
            for block in field:
                np.sqrt(block, out=block)
                if not done:
                    done = allreduce.test()  # advances the plan, too
                    n_overlapped += 1
            allreduce.wait()
            expected = sum(range(comm.size)) + comm.size * start
            assert (recvbuf == expected).all(), f"rank {comm.rank}: {recvbuf[0]} is not {expected}"
    least = comm.allreduce(n_overlapped, MPI.MIN)
    if comm.rank == 0:
        print(f"{N_STARTS} allreduces on {comm.size} ranks are right;", end=" ")
        print(f"every rank computed at least {least} blocks meanwhile")


if __name__ == "__main__":
    main()
