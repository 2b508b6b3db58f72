"""Run mpiexec so that whatever happens, none of its processes is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.guardian import die_with

_PROC: Final = Path("/proc")


def run_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    *,
    name: str | None = None,
    stdin: int | None = subprocess.DEVNULL,
) -> int:
    """Run an mpiexec command and return its exit code, leaving none of its processes behind.

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

    Raises
    ------
    LaunchError
        If it takes longer than `timeout_s`, or cannot be started.
    """
    return _run(command, environment, timeout_s, name, stdin, pipe=None).returncode


def capture_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    *,
    name: str | None = None,
    stdin: int | None = subprocess.DEVNULL,
) -> subprocess.CompletedProcess[str]:
    """Run an mpiexec command as `run_job` does, and return what it printed too."""
    return _run(command, environment, timeout_s, name, stdin, pipe=subprocess.PIPE)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None,
    name: str | None,
    stdin: int | None,
    pipe: int | None,
) -> subprocess.CompletedProcess[str]:
    own = os.getpid()
    try:
        # The child only asks the kernel to end it, politely, when this process is killed.
        job = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=stdin,
            stdout=pipe,
            stderr=pipe,
            text=True,
            preexec_fn=lambda: die_with(own, signal.SIGTERM),
        )
    except OSError as error:
        raise LaunchError(
            f"{command[0]} cannot be started: {error.strerror}; see 'collplan doctor'"
        ) from None
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
        if _stat(pid).get("began") == began:
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> dict[int, int]:
    """Return children of children: process id and time of start, so that ids are not mistaken."""
    processes = {int(entry.name): _stat(int(entry.name)) for entry in _PROC.glob("[0-9]*")}
    found: dict[int, int] = {}
    parents = {pid}
    while parents:
        children = {
            child: stat["began"]
            for child, stat in processes.items()
            if stat.get("parent") in parents
        }
        parents = set(children) - set(found)
        found |= children
    return found


def _stat(pid: int) -> dict[str, int]:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return {}
    # The name, in brackets, may hold anything; what follows is fixed.
    fields = text.rpartition(")")[2].split()
    return {"parent": int(fields[1]), "began": int(fields[19])}
