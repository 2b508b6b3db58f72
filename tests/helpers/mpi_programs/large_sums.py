"""A program that knows nothing of collplan: sums of 8 kB and of 16 MB per rank."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
for n in (1000, 2_000_000):
    mine, total = np.full(n, comm.rank + 1.0), np.zeros(n)
    for _ in range(4):
        total[:] = 0
        comm.Allreduce(mine, total)
        assert (total == comm.size * (comm.size + 1) / 2).all()
if comm.rank == 0:
    print("passed", flush=True)
