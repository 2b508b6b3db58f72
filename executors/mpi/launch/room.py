"""Checks of cores, memory and open files before ranks are started."""

from __future__ import annotations

import contextlib
import sys
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.planner.memory import free_machine_bytes

if sys.platform != "win32":
    import resource

MOST_PER_CORE: Final = 8
"""Ranks that one core may get before somebody has to ask for it."""
BYTES_PER_RANK: Final = 80 * 2**20
"""Memory that a rank of ``collplan run`` has for itself, beside its buffers.

Measured: 82 MB for each of 8 ranks, with MPICH 5.0.2 and Python 3.11.
"""
FILES: Final = 32
FILES_PER_RANK: Final = 4
"""Open files that a launcher needs, and more of them for each rank.

Measured: MPICH 5.0.2 needs 32 for 2 ranks and 80 for 16, Open MPI 5 needs 64 for 8.
"""


def check_crowd(n_ranks: int, n_cores: int) -> None:
    """Raise `LaunchError` where cores would get too many ranks by mistake."""
    per_core = -(-n_ranks // n_cores)
    if per_core > MOST_PER_CORE:
        raise LaunchError(
            f"-n: {n_ranks} ranks would be {per_core} on each of {n_cores} cores; start fewer "
            f"with -n, emulate a smaller cluster with 'collplan emulate', or add --oversubscribe"
        )


def check_room(n_ranks: int, buffer_bytes: int = 0) -> None:
    """Raise `LaunchError` where ranks would get too little memory or too few open files.

    Parameters
    ----------
    n_ranks : int
        How many are to be started here.
    buffer_bytes : int
        What all their buffers take together.
    """
    needed, free = n_ranks * BYTES_PER_RANK + buffer_bytes, free_machine_bytes()
    if needed > free:
        raise LaunchError(
            f"-n: {n_ranks} ranks need about {needed / 1e9:.3g} GB of memory, "
            f"{free / 1e9:.3g} GB are free here; start fewer with -n, or give a smaller count"
        )
    files = n_files(n_ranks)
    if sys.platform != "win32":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and most < files:
            raise LaunchError(
                f"-n: {n_ranks} ranks need about {files} open files, {most} are allowed; "
                f"raise the limit (ulimit -n {files}), or start fewer with -n"
            )


def n_files(n_ranks: int) -> int:
    """Return how many open files a launcher of so many ranks needs."""
    return FILES + FILES_PER_RANK * n_ranks


def allow_files(n_ranks: int) -> None:
    """Raise this process's limit of open files to what its ranks need, as far as it may."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < n_files(n_ranks):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (n_files(n_ranks), hard))
