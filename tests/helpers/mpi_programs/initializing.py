"""A program that knows nothing of collplan and initializes and finalizes MPI by itself.

usage: initializing.py [thread|twice]
"""

import sys

import mpi4py

assert (mpi4py.rc.initialize, mpi4py.rc.finalize) == (True, None)
mpi4py.rc.initialize = "twice" in sys.argv
from mpi4py import MPI  # noqa: E402

if "thread" in sys.argv:
    assert MPI.Init_thread(MPI.THREAD_FUNNELED) >= MPI.THREAD_FUNNELED
else:
    MPI.Init()
rank = MPI.COMM_WORLD.Get_rank()
MPI.Finalize()
assert MPI.Is_finalized()
if rank == 0:
    print("passed", flush=True)
