"""Runs of mpiexec, with checks of resources before each run.

No process remains after a run. Ranks take about a second to start. In this time, the engine is
compiled if necessary.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.host.processes import all_processes, die_with, stat_of
from collplan.executors.mpi.launch.environment import current_job, ranks_on_fullest
from collplan.executors.mpi.launch.select import Srun, select_launcher
from collplan.executors.mpi.launch.standard_input import INPUT, can_be_opened_again, offer_input
from collplan.executors.mpi.loop.entries import entry, is_kept
from collplan.planner.machine_code.compile_time import announce_with
from collplan.planner.memory import free_machine_bytes

if sys.platform != "win32":
    import resource

MOST_PER_CORE: Final = 8
"""Maximum number of ranks per core without an explicit option."""
BYTES_PER_RANK: Final = 80 * 2**20
"""Private memory of a rank of ``collplan run`` in bytes, without its buffers.

Measured: 82 MB per rank, for 8 ranks of MPICH 5.0.2 and Python 3.11.
"""
FILES: Final = 32
FILES_PER_RANK: Final = 4
"""Number of open files of a launcher per rank, in addition to `FILES`.

Measured: MPICH 5.0.2 needs 32 files for 2 ranks and 80 for 16. Open MPI 5 needs 64 for 8.
"""


def check_crowd(n_ranks: int, n_cores: int) -> None:
    """Check that there are at most `MOST_PER_CORE` ranks per core.

    Raises
    ------
    LaunchError
        If there are more.
    """
    per_core = -(-n_ranks // n_cores)
    if per_core > MOST_PER_CORE:
        raise LaunchError(
            f"-n: {n_ranks} ranks would be {per_core} on each of {n_cores} cores; start fewer "
            f"with -n, emulate a smaller cluster with 'collplan emulate', or add --oversubscribe"
        )


def check_room(n_ranks: int, buffer_bytes: int = 0) -> None:
    """Check that memory and the limit of open files are sufficient for ranks.

    Parameters
    ----------
    n_ranks : int
        Number of ranks, on this machine or on the nodes of this batch job.
    buffer_bytes : int
        Size of the buffers of all ranks in bytes.

    Raises
    ------
    LaunchError
        If memory or the limit of open files is too small.
    """
    here = ranks_on_fullest(n_ranks, current_job())
    needed = here * BYTES_PER_RANK + buffer_bytes * here // n_ranks
    free = free_machine_bytes()
    if needed > free:
        raise LaunchError(
            f"-n: {here} ranks need about {needed / 1e9:.3g} GB of memory, "
            f"{free / 1e9:.3g} GB are free here; start fewer with -n, or give a smaller count"
        )
    files = n_files(here)
    if sys.platform != "win32":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and most < files:
            raise LaunchError(
                f"-n: {here} ranks need about {files} open files, {most} are allowed; "
                f"raise the limit (ulimit -n {files}), or start fewer with -n"
            )


def n_files(n_ranks: int) -> int:
    """Return the number of open files that a launcher of `n_ranks` ranks needs."""
    return FILES + FILES_PER_RANK * n_ranks


def allow_files(n_ranks: int) -> None:
    """Raise the limit of open files of this process as far as `n_ranks` ranks need, if possible."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < n_files(n_ranks):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (n_files(n_ranks), hard))


def run_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    *,
    name: str | None = None,
    stdin: int | None = subprocess.DEVNULL,
    capture: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run an mpiexec command, and stop all its processes at the end.

    Parameters
    ----------
    command : sequence of str
        The command.
    environment : mapping of str to str
        The whole environment of the command.
    timeout_s : float, optional
        Time limit in seconds.
    name : str, optional
        Name of the command in messages. The default is the whole command.
    stdin : int or None
        File descriptor of the standard input; None for that of this process. By default, the
        input is empty, because launchers read all input, even if ranks do not need it.
    capture : bool
        Whether to return the output. Otherwise, the command writes to the output of this process.

    Returns
    -------
    subprocess.CompletedProcess
        Exit code, and captured output.

    Raises
    ------
    LaunchError
        If the command exceeds the time limit, or cannot be started.
    """
    job = _start(command, environment, stdin, subprocess.PIPE if capture else None)
    try:
        with _terminated_as_interrupt():
            out, err = job.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{name or ' '.join(command)} did not end within {timeout_s:g} s and was stopped; "
            "allow more time or make it smaller"
        ) from None
    except KeyboardInterrupt:
        _stop(job, signal.SIGINT)
        raise
    finally:
        if job.returncode is None:
            _stop(job, signal.SIGTERM)
    return subprocess.CompletedProcess(command, job.returncode, out, err)


def _start(
    command: Sequence[str], environment: Mapping[str, str], stdin: int | None, pipe: int | None
) -> subprocess.Popen[str]:
    """Start a command to which the kernel sends SIGTERM when this process is killed."""
    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=stdin,
            stdout=pipe,
            stderr=pipe,
            text=True,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
    except OSError as error:
        raise LaunchError(
            f"{command[0]} cannot be started: {error.strerror}; see 'collplan doctor'"
        ) from None


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C within the block, so that ranks are stopped first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _stop(job: subprocess.Popen[str], first: signal.Signals) -> None:
    """Stop a job and all its ranks, by `first` and SIGTERM, and after a few seconds by SIGKILL."""
    ranks = _descendants(job.pid)
    for polite in (first, signal.SIGTERM):
        job.send_signal(polite)
        try:
            job.wait(2)
            break
        except subprocess.TimeoutExpired:
            ranks |= _descendants(job.pid)
    else:
        job.kill()
        job.wait()
    for pid, began in ranks.items():
        if stat_of(pid)[1] == began:
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> dict[int, int]:
    """Return all descendants of a process, with their start times, because ids may be reused."""
    processes = all_processes()
    found: dict[int, int] = {}
    parents = {pid}
    while parents:
        children = {pid: began for pid, (of, began) in processes.items() if of in parents}
        parents = set(children) - set(found)
        found |= children
    return found


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Compile the engine's loop in another process while the block runs, unless it is cached.

    Ranks that need the loop wait for this process, which is stopped at the end of the block. If it
    cannot compile the loop, a rank does.
    """
    if sys.platform == "win32" or is_kept("run_loop"):
        yield
        return
    parent, helper = os.getpid(), os.fork()
    if not helper:
        with suppress(BaseException):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with(parent, signal.SIGKILL)
            announce_with(lambda: None)  # ranks announce it
            entry("run_loop")
        os._exit(0)
    try:
        yield
    finally:
        os.kill(helper, signal.SIGTERM)
        os.waitpid(helper, 0)


def is_under_futures() -> bool:
    """Return whether this program runs under ``python -m mpi4py.futures``.

    This imports nothing, because mpi4py may be missing otherwise.
    """
    core = sys.modules.get("mpi4py.futures._core")
    return core is not None and getattr(core, "SharedPool", None) is not None


def mpi_executor(initializer: Callable[[], object] | None = None) -> Executor:
    """Return an executor whose workers are the other ranks.

    If there is only one rank, MPI spawns workers if it can.

    Parameters
    ----------
    initializer : callable, optional
        Function that each worker calls first.
    """
    from mpi4py.futures import MPIPoolExecutor

    executor: Executor = MPIPoolExecutor(initializer=initializer)
    return executor


def relaunch(
    program: Sequence[str],
    n_ranks: int,
    timeout_s: float | None = None,
    *,
    reads_input: bool = False,
) -> int:
    """Run a command line on `n_ranks` ranks and return its exit code.

    Ranks write to standard output and error of this process. Ctrl-C stops them. No process remains
    afterwards. On the ranks, `join_world` checks that they are in one world.

    Parameters
    ----------
    program : sequence of str
        Command line of each rank, for example from `collplan.cli.ranks.own_command`.
    n_ranks : int
        Number of ranks.
    timeout_s : float, optional
        Time limit in seconds.
    reads_input : bool
        Whether rank 0 gets the standard input of this process. Otherwise, it is not read.

    Returns
    -------
    int
        Exit code.

    Raises
    ------
    LaunchError
        If MPI is missing, if the machine has too little memory or too few open files, or if the
        ranks exceed the time limit.
    """
    check_room(n_ranks)
    launcher = select_launcher()
    allow_files(n_ranks)
    environment = launcher.environment(n_ranks)
    stdin: int | None = subprocess.DEVNULL
    with suppress(OSError):  # it may be closed
        if reads_input and isinstance(launcher, Srun):
            stdin = None  # srun forwards it unchanged
        elif reads_input and can_be_opened_again(0):
            # Open MPI 5 does not forward the end of the input. MPICH fails if ranks read it late.
            environment[INPUT] = offer_input()
        elif reads_input:
            stdin = None
    command = launcher.command(n_ranks, program)
    return run_job(command, environment, timeout_s, stdin=stdin).returncode
