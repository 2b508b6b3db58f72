"""Start of a rank: initialization of MPI within a time limit, and a check of the world's size."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.environment import (
    MPIEXEC,
    launched_ranks,
    launcher_rank,
    lone_tasks,
    slurm_tasks,
)
from collplan.executors.mpi.launch.launcher import family_of, find_launcher, way_to_mpi
from collplan.planner.machine_code.code_folders import leave_warnings_to_others

if TYPE_CHECKING:
    from mpi4py import MPI


START_S: Final = 300.0
"""Time limit of `MPI_Init`, in seconds."""
_FIRST_SAYS_IT_S = 3.0


@contextmanager
def limit_start(seconds: float = START_S) -> Iterator[None]:
    """End this process with one line if the block takes longer than `seconds`.

    ``MPI_Init`` holds Python's lock, and never returns if one process of the launcher does not call
    it. Therefore another process measures the time.
    """
    if not hasattr(os, "fork"):
        yield
        return
    waits, is_over = os.pipe()
    sys.stderr.flush()
    watcher = os.fork()
    if watcher == 0:
        os.close(is_over)
        _watch(waits, seconds)
    os.close(waits)
    try:
        yield
    finally:
        os.close(is_over)
        os.waitpid(watcher, 0)


def _watch(waits: int, seconds: float) -> NoReturn:
    """Wait until the parent closes its end of the pipe or ends; end it after the time limit."""
    parent = os.getppid()
    try:
        ready, _, _ = select.select([waits], [], [], seconds)
        if not ready:
            text = (
                f"collplan: error: MPI_Init has not returned after {seconds:g} s; start the same "
                "command in all processes of this mpiexec or srun\n"
            )
            os.write(2, text.encode())
            os.kill(parent, signal.SIGKILL)
    finally:
        # This copy of the process must not continue in any case.
        os._exit(0)


def join_world(n_ranks: int | None = None) -> MPI.Intracomm:
    """Initialize MPI, and check and return ``COMM_WORLD``.

    Parameters
    ----------
    n_ranks : int, optional
        Required number of ranks.

    Raises
    ------
    LaunchError
        If mpi4py is missing, if the mpiexec of another MPI started the processes, so that each
        would be alone in its world, or if the world has another size.
    """
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = True
        with warnings.catch_warnings():
            # mpi4py warns of a foreign launcher; the error below has more details.
            warnings.simplefilter("ignore", RuntimeWarning)
            from mpi4py import MPI
    except ImportError as error:
        raise LaunchError(f"mpi4py cannot be imported ({error}); {way_to_mpi()}") from None
    if not MPI.Is_initialized():
        if _is_foreign_launcher(family_of(MPI.get_vendor()[0])):
            # Some MPIs abort here with long texts, so this is checked before.
            raise lone_tasks() if slurm_tasks() > 1 else _foreign(launched_ranks())
        with limit_start():
            MPI.Init_thread()
    if MPIEXEC in os.environ:
        from collplan.executors.mpi.stall.watchdog import speak_when_ended

        speak_when_ended()
    comm = MPI.COMM_WORLD
    if comm.size == 1 and slurm_tasks() > 1:
        raise lone_tasks()
    if comm.size == 1 and launched_ranks() > 1:
        raise _foreign(launched_ranks())
    if n_ranks not in (None, comm.size):
        raise LaunchError(
            f"the spec needs {n_ranks} ranks, the MPI world has {comm.size}; "
            f"start it with -n {n_ranks}"
        )
    if comm.rank > 0:
        leave_warnings_to_others()
    return comm


def _is_foreign_launcher(family: str) -> bool:
    of_openmpi = ("PMIX_RANK" if family == "openmpi" else "OMPI_COMM_WORLD_SIZE") in os.environ
    return launched_ranks() > 1 and of_openmpi != (family == "openmpi")


def _foreign(started: int) -> LaunchError:
    """Return the error for an mpiexec of another MPI.

    Ranks other than the first return after a delay, in which the first rank can report the error.
    """
    if launcher_rank() > 0:
        # Launchers terminate all ranks when the first one has ended, and no rank waits for rank 0.
        time.sleep(_FIRST_SAYS_IT_S)
    try:
        launcher = find_launcher()
        wanted, way_out = launcher.library.version, f"use {launcher.mpiexec}"
    except LaunchError as error:
        wanted, way_out = "mpi4py's", str(error)
    # The launcher's name is given, or derived from its environment variables.
    by_openmpi = "OMPI_COMM_WORLD_SIZE" in os.environ
    starter = os.environ.get(MPIEXEC, "Open MPI's mpiexec" if by_openmpi else "the mpiexec used")
    return LaunchError(
        f"the MPI world has 1 rank where {started} were started: {starter} is not of the MPI "
        f"that mpi4py loads ({wanted}); {way_out}"
    )
