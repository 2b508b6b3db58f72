"""A program that breaks what collplan could import from then on.

Kernels get their machine code at once, as on a machine so slow that no call is worth interpreting.

usage: hiding.py hidden|forbidden
"""

import sys
from importlib import import_module

import numpy as np
from mpi4py import MPI

from collplan.planner.machine_code import interpreted


class Forbidding:
    """An importer that finds nothing and lets nobody else look."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        raise ImportError(f"{name} is not to be imported")


def is_refused(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return True
    return False


def numba_modules() -> set[str]:
    """Return the names of numba's modules, other than its package, and of llvmlite's."""
    return {name for name in sys.modules if name.startswith(("numba.", "llvmlite"))}


hidden = "hidden" in sys.argv
if hidden:  # as mpi4py's own test runner does
    sys.modules["numba"] = None  # type: ignore[assignment]
    sys.modules.pop("llvmlite", None)
    left = numba_modules()  # some, if a kernel was compiled early
else:
    sys.meta_path.insert(0, Forbidding())
interpreted.SHARE = 0  # type: ignore[misc]
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
if hidden:
    assert is_refused("numba")
    assert numba_modules() == left, "what was hidden stays so"
else:
    assert is_refused("colorsys"), "imports stay forbidden"
if comm.rank == 0:
    print("passed", flush=True)
