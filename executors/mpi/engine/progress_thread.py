"""The thread that runs the background of one bound plan, outside of Python."""

from __future__ import annotations

import ctypes
import signal
import threading
import weakref
from ctypes import c_int, c_void_p
from typing import Any, Final, Protocol

from collplan.executors.mpi.loop.calls import address_of, write_word
from collplan.executors.mpi.loop.loop import run_loop
from collplan.executors.mpi.loop.state import SERVE

LONGEST_JOIN_S: Final = 5.0
"""How long an end waits for a thread that is at work: a copy may be long, MPI may be stuck."""
_all: weakref.WeakSet[ProgressThread] = weakref.WeakSet()


class Served(Protocol):
    """The memory of a program that a thread advances."""

    @property
    def address(self) -> int:
        """Return the address of the program's state."""

    def address_in(self, field: str) -> int:
        """Return the address of a field of the state."""

    def get(self, field: str) -> int:
        """Return the value of a field of the state."""


class ProgressThread:
    """A thread that serves a state until it is stopped, or its owner or Python ends.

    It keeps the state, but neither the engine nor the buffers.

    Parameters
    ----------
    memory : Served
        Of a program with a background that a thread runs.
    owner : object
        The engine: when it goes, so does the thread.
    """

    def __init__(self, memory: Served, owner: object) -> None:
        thread = threading.Thread(
            target=_serve, args=(memory,), name="collplan progress", daemon=True
        )
        thread.start()
        # Called at the end of Python at the latest, before its memory goes and MPI ends.
        self._stop: Any = weakref.finalize(owner, _stop, thread, memory)
        _all.add(self)

    def stop(self) -> None:
        """End the thread; harmless twice."""
        self._stop()


def stop_all() -> None:
    """End all threads, before memory goes that they may look at."""
    for thread in list(_all):
        thread.stop()


def _serve(memory: Served) -> None:
    # Signals are the caller's, whose wait they end.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    run_loop(memory.address, SERVE)


def _stop(thread: threading.Thread, memory: Served) -> None:
    write_word(memory.address_in("is_stopping"), 1)
    post: Any = ctypes.CFUNCTYPE(c_int, c_void_p)(address_of("sem_post"))
    post(memory.get("handed"))
    thread.join(LONGEST_JOIN_S)
