"""A program that knows nothing of collplan, and breaks what collplan could import from then on.

usage: hiding.py hidden|forbidden
"""

import sys

import numpy as np
from mpi4py import MPI


class Forbidding:
    """An importer that finds nothing and lets nobody else look."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        raise ImportError(f"{name} is not to be imported")


if "hidden" in sys.argv:  # as mpi4py's own test runner does
    sys.modules["numba"] = None  # type: ignore[assignment]
    del sys.modules["llvmlite"]
else:
    sys.meta_path.insert(0, Forbidding())
hidden = "numba" in sys.modules, "llvmlite" in sys.modules
comm = MPI.COMM_WORLD
mine, total, blocks = np.full(100, comm.rank + 1.0), np.zeros(100), np.zeros(100 * comm.size)
for _ in range(4):
    comm.Allreduce(mine, total)
    assert (total == comm.size * (comm.size + 1) / 2).all()
    comm.Allgather(mine, blocks)
    assert (blocks.reshape(comm.size, -1)[-1] == comm.size).all()
    comm.Scan(mine, total, MPI.MAX)
    assert (total == comm.rank + 1).all()
    comm.Barrier()
assert hidden == ("numba" in sys.modules, "llvmlite" in sys.modules), "what was hidden stays so"
if comm.rank == 0:
    print("passed", flush=True)
