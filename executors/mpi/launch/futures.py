"""An executor over the ranks that ``mpiexec -n N python -m mpi4py.futures`` has started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Executor


def is_under_futures() -> bool:
    """Return whether this program runs under ``python -m mpi4py.futures``.

    Loads nothing: outside it, mpi4py need not be there.
    """
    core = sys.modules.get("mpi4py.futures._core")
    return core is not None and getattr(core, "SharedPool", None) is not None


def mpi_executor(initializer: Callable[[], object] | None = None) -> Executor:
    """Return an executor whose workers are the other ranks, where `initializer` is called first.

    With one rank there are none, and MPI starts workers of its own where it can.
    """
    from mpi4py.futures import MPIPoolExecutor

    executor: Executor = MPIPoolExecutor(initializer=initializer)
    return executor
