"""Threads that run compiled code, their processors, and their semaphores."""

from __future__ import annotations

import ctypes
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.loop.entries import address_of, entry

LONGEST_JOIN_S: Final = 5.0
"""Time limit in seconds to join a working thread, as a copy may take long, or MPI may hang."""
SEMAPHORE_BYTES: Final = 128
"""Upper limit of the size of semaphores on Linux."""
_WORD_BITS: Final = 64
_all: weakref.WeakSet[ProgressThread] = weakref.WeakSet()


@dataclass(frozen=True, eq=False, slots=True)
class Background:
    """Processors of a progress thread and of its tasks.

    Parameters
    ----------
    processors : sequence of int
        Numbers of the processors in the operating system.
    processor : ndarray of int16, shape (n_tasks,)
        Index of the processor of each task; -1 for tasks of the caller.
    crowd : float
        Largest number of threads that share one of the processors.
    """

    processors: Sequence[int]
    processor: npt.NDArray[np.int16]
    crowd: float

    def masks(self) -> npt.NDArray[np.uint64]:
        """Return the affinity mask of the operating system for each processor."""
        n_words = max(self.processors) // _WORD_BITS + 1
        masks = np.zeros((len(self.processors), n_words), dtype=np.uint64)
        for row, processor in enumerate(self.processors):
            masks[row, processor // _WORD_BITS] = 1 << processor % _WORD_BITS
        return masks


class ProgressThread:
    """A thread that runs until it is stopped, or until its owner or Python ends.

    Parameters
    ----------
    name : str
        Name of the thread.
    serve : callable
        Function to run. It must keep its memory alive. It must not keep the owner alive, unless
        the owner exists until Python ends.
    stopping : int
        Address of the word that stops the thread.
    wake : int
        Address of the semaphore on which it sleeps.
    owner : object
        Object whose deletion ends the thread.

    Attributes
    ----------
    native_id : int
        Identifier of the thread in the operating system.
    """

    def __init__(
        self, name: str, serve: Callable[[], object], stopping: int, wake: int, owner: object
    ) -> None:
        thread = threading.Thread(target=_run, args=(serve,), name=name, daemon=True)
        thread.start()
        assert thread.native_id is not None, "it has begun"
        self._thread, self.native_id = thread, thread.native_id
        # Called at the end of Python at the latest, before memory is freed and MPI ends.
        self._stop: Any = weakref.finalize(owner, _stop, thread, serve, stopping, wake)
        _all.add(self)

    def stop(self) -> bool:
        """End the thread; return whether it has ended within `LONGEST_JOIN_S`, now or before."""
        self._stop()
        return not self._thread.is_alive()


def stop_all() -> bool:
    """End all threads, before memory that they may access is freed; return whether they have."""
    have_ended = [thread.stop() for thread in list(_all)]
    return all(have_ended)


def semaphore() -> npt.NDArray[np.uint8]:
    """Return the memory of a semaphore, whose value is 0."""
    memory = np.zeros(SEMAPHORE_BYTES, np.uint8)
    initialise: Any = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_uint)(address_of("sem_init"))
    if initialise(memory.ctypes.data, 0, 0) != 0:
        raise OSError("the system has no semaphores without names")
    return memory


def semaphore_call(name: str) -> Callable[[int], int]:
    """Return a C function that takes the address of a semaphore, such as ``sem_post``."""
    return ctypes.CFUNCTYPE(c_int, c_void_p)(address_of(name))


def _run(serve: Callable[[], object]) -> None:
    # Only the caller handles signals, which end its wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    serve()


def _stop(thread: threading.Thread, serve: object, stopping: int, wake: int) -> None:
    entry("write_word")(stopping, 1)
    semaphore_call("sem_post")(wake)
    thread.join(LONGEST_JOIN_S)
