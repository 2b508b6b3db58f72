"""A program that knows nothing of collplan: sums, arguments, ways to end.

usage: unchanged.py WORDS...
"""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
half = comm.Split(comm.rank % 2)
total, part = np.zeros(2000), np.zeros(2000)
for _ in range(3):
    comm.Allreduce(np.full(2000, comm.rank + 1.0), total)
    half.Barrier()
    half.Allreduce(np.ones(2000), part)
    assert (part == half.size).all()
if comm.rank == 0:
    kind = type(comm).__module__.partition(".")[0]
    print("unchanged", kind, __name__, sys.argv[1:], total[0], flush=True)
if "fail" in sys.argv and comm.rank == comm.size - 1:
    raise RuntimeError("as asked")
if "fail" in sys.argv:
    comm.Barrier()
if "three" in sys.argv:
    sys.exit(3)
