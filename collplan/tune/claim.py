"""Exclusive access of a tuning run to its table, and the end of orphaned ranks."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from collplan.executors.mpi.host.processes import die_with
from collplan.planner.machine_code.file_lock import locked
from collplan.specs.errors import CollplanError

STARTER: Final = "COLLPLAN_TUNE_STARTER"
"""Environment variable with the host name and process id of the process that started the ranks."""
PATIENCE_S: Final = 20.0
"""Time in seconds for which a new run waits for the end of an earlier run."""

_LOCK_POLL_S: Final = 0.2
_PARENT_POLL_S: Final = 1.0
_INIT_PID: Final = 1


@contextmanager
def claimed(output: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold an exclusive lock on a table while it is tuned.

    The kernel releases the lock of a process that ends.

    Parameters
    ----------
    output : Path
        Path of the table.
    patience_s : float
        Time to wait for another run to release the lock, in seconds.

    Raises
    ------
    CollplanError
        If another run still holds the lock, or the lock file cannot be written.
    """
    path = output.with_name(f".{output.name}.lock")
    with ExitStack() as held:
        try:
            is_held = held.enter_context(locked(path, patience_s, _LOCK_POLL_S))
        except OSError as error:
            raise CollplanError(
                f"{output}: cannot be written: {error.strerror}; give another path"
            ) from None
        if not is_held:
            raise CollplanError(
                f"{output}: another run is tuning it; wait for that, or give another --output"
            )
        yield
        path.unlink(missing_ok=True)


def name_starter() -> str:
    """Return the value of `STARTER` that names this process."""
    return f"{platform.node()} {os.getpid()}"


def end_with_parents() -> None:
    """End this process soon after its parent, or after the process that `STARTER` names.

    A launcher that is killed cannot stop the ranks that it has launched, and a remaining rank
    would wait for the other ranks forever.
    """
    host, _, pid = os.environ.get(STARTER, "").rpartition(" ")
    starter = int(pid) if host == platform.node() and pid.isdecimal() else None
    if starter is not None and "OMPI_COMM_WORLD_SIZE" not in os.environ:
        # MPI_Init holds the interpreter lock, so `_watch` may not run while MPI starts.
        die_with(os.getppid(), signal.SIGKILL)
    threading.Thread(
        target=_watch, args=(os.getppid(), starter), name="parents", daemon=True
    ).start()


def _watch(parent: int, starter: int | None) -> None:
    # A rank that has a starter but whose parent is init has lost its parent already.
    is_orphan = starter is not None and parent == _INIT_PID
    while not is_orphan and os.getppid() == parent and (starter is None or _is_alive(starter)):
        time.sleep(_PARENT_POLL_S)
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
