"""One run at a time on a table, which ends if the process that started it is killed."""

from __future__ import annotations

import fcntl
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collplan.executors.mpi.host.processes import die_with
from collplan.specs.errors import CollplanError

STARTER: Final = "COLLPLAN_TUNE_STARTER"
"""Environment variable by which a process that starts ranks tells them its host and id."""
PATIENCE_S: Final = 20.0
"""Time that a new run waits for an old one that is ending."""

_POLL_S: Final = 0.2
_LOOK_S: Final = 1.0
_FIRST: Final = 1


@contextmanager
def claimed(output: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Keep other runs away from a table; the kernel forgets the claim of a process that ends.

    Raises
    ------
    CollplanError
        If another run has it and does not end.
    """
    path = output.with_name(f".{output.name}.lock")
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise CollplanError(
            f"{output}: cannot be written: {error.strerror}; give another path"
        ) from None
    try:
        _lock(descriptor, output, patience_s)
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, output: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CollplanError(
                    f"{output}: another run is tuning it; wait for that, or give another --output"
                ) from None
            time.sleep(_POLL_S)


def name_starter() -> str:
    """Return what `STARTER` has to say to name this process."""
    return f"{platform.node()} {os.getpid()}"


def end_with_parents() -> None:
    """Let this process end soon after its parent, or the process that `STARTER` names here.

    A launcher that is killed cannot stop what it has launched; a rank that is left
    would wait for the others for ever.
    """
    host, _, pid = os.environ.get(STARTER, "").rpartition(" ")
    starter = int(pid) if host == platform.node() and pid.isdecimal() else None
    if starter is not None and "OMPI_COMM_WORLD_SIZE" not in os.environ:
        # While MPI starts, no other thread of Python's runs, so that `_watch` may come too late.
        die_with(os.getppid(), signal.SIGKILL)
    threading.Thread(
        target=_watch, args=(os.getppid(), starter), name="parents", daemon=True
    ).start()


def _watch(parent: int, starter: int | None) -> None:
    # With a starter there was another parent than the system's first process.
    is_orphan = starter is not None and parent == _FIRST
    while not is_orphan and os.getppid() == parent and (starter is None or _is_alive(starter)):
        time.sleep(_LOOK_S)
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
