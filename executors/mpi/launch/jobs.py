"""Run mpiexec where there is room for its ranks, and leave none of its processes behind.

Ranks take about a second to start; the engine that they need is compiled meanwhile.
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
from collplan.executors.mpi.launch.launcher import current_job, ranks_on_fullest
from collplan.executors.mpi.launch.select import select_launcher
from collplan.executors.mpi.launch.srun import Srun
from collplan.executors.mpi.launch.standard_input import INPUT, can_be_opened_again
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.loop.object_files import is_kept
from collplan.planner.arrays.compile_time import announce_with
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
        How many are to be started, here or on the nodes of this batch job.
    buffer_bytes : int
        What all their buffers take together.
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
    """Return how many open files a launcher of `n_ranks` ranks needs."""
    return FILES + FILES_PER_RANK * n_ranks


def allow_files(n_ranks: int) -> None:
    """Raise this process's limit of open files to what its ranks need, as far as it may."""
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
    """Run an mpiexec command, leaving none of its processes behind.

    Parameters
    ----------
    command : sequence of str
        The command.
    environment : mapping of str to str
        Its whole environment.
    timeout_s : float, optional
        When to stop it.
    name : str, optional
        What messages call it instead of the whole command.
    stdin : int or None
        File descriptor of its standard input, None for this process's own; empty
        by default, as launchers read all there is, whether ranks want it or not.
    capture : bool
        Whether to return what it prints, instead of passing that through.

    Raises
    ------
    LaunchError
        If it takes longer than `timeout_s`, or cannot be started.
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
    """Start a command that the kernel is to end, politely, when this process is killed."""
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
    """Let SIGTERM end the wait like Ctrl-C, so that the ranks are stopped first."""
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
    """Stop a job and all its ranks: politely, and after a few seconds for good."""
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
    """Return children of children: process id and time of start, so that ids are not mistaken."""
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

    Ranks that need the loop wait for this process. It is killed at the end of the block. If it
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
            announce_with(lambda: None)  # the ranks say it
            entry("run_loop")
        os._exit(0)
    try:
        yield
    finally:
        os.kill(helper, signal.SIGTERM)
        os.waitpid(helper, 0)


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


def relaunch(
    program: Sequence[str],
    n_ranks: int,
    timeout_s: float | None = None,
    *,
    reads_input: bool = False,
) -> int:
    """Run a command line on `n_ranks` ranks and return its exit code.

    Standard output and error pass through. Ctrl-C reaches the ranks. Nothing
    is left running. The ranks' `world` sees whether they met.

    Parameters
    ----------
    program : sequence of str
        Such as what `collplan.cli.ranks.own_command` returns.
    n_ranks : int
        How many ranks.
    timeout_s : float, optional
        When to stop the job.
    reads_input : bool
        Whether rank 0 gets this process's standard input; otherwise it is left alone.

    Raises
    ------
    LaunchError
        If MPI is missing, the machine has no room for the ranks, or they take
        longer than `timeout_s`.
    """
    check_room(n_ranks)
    launcher = select_launcher()
    allow_files(n_ranks)
    environment = launcher.environment(n_ranks)
    stdin: int | None = subprocess.DEVNULL
    with suppress(OSError):  # it may be closed
        if reads_input and isinstance(launcher, Srun):
            stdin = None  # srun passes it on as it is
        elif reads_input and can_be_opened_again(0):
            # Open MPI 5 passes input on without its end, MPICH fails if ranks read it late.
            environment[INPUT] = str(os.getpid())
        elif reads_input:
            stdin = None
    command = launcher.command(n_ranks, program)
    return run_job(command, environment, timeout_s, stdin=stdin).returncode
