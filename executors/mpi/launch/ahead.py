"""Compilation of the engine while ranks start, which takes them about a second."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from collplan.executors.mpi.host.processes import die_with
from collplan.executors.mpi.loop.entries import entry, is_kept
from collplan.planner.arrays.compile_time import announce_with


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
