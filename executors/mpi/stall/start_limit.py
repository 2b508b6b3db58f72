"""A time limit for MPI's initialization, which waits for all processes of a launcher."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

START_S: Final = 300.0
"""Time limit of `MPI_Init`, in seconds."""


@contextmanager
def limit_start(seconds: float = START_S) -> Iterator[None]:
    """End this process with one line if the block takes longer than `seconds`.

    ``MPI_Init`` holds Python's lock and never returns where one process of the launcher
    does not call it. Another process therefore watches the time.
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
    """Wait until the parent closes its end of the pipe or ends; when time is up, end it."""
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
        # Whatever happens, this copy of the program must not go on.
        os._exit(0)
