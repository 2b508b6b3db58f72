"""Collectives that overlap with computation: start the collective, compute, then wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.measure.native import NativeCollective
from collplan.measure.timing import Call, nothing
from collplan.planner.machine_code.kernel import compile_at_once

BYTES: Final = 256 * 2**10
"""Size in bytes of the array that the computation updates; it fits into a core's own cache."""
_ITEMSIZE: Final = 8
_CALIBRATION_S: Final = 0.01
_TRIALS: Final = 3


class Computation:
    """Repeated updates of an array for approximately a given time.

    A call computes, and releases the interpreter's lock during that time. The constructor
    measures the number of updates that are needed, by the processor time of the thread, so
    that other threads on the same processor have no influence.

    Parameters
    ----------
    seconds : float
        Duration in s on a core of its own; 0 for no computation.
    """

    def __init__(self, seconds: float) -> None:
        self._values = np.ones(BYTES // _ITEMSIZE)
        self.n_updates = 0
        if seconds > 0:
            self.n_updates = round(seconds / self._s_per_update())

    def __call__(self) -> None:
        """Run the computation once."""
        if self.n_updates:
            _update(self._values, self.n_updates)

    def _s_per_update(self) -> float:
        _update(self._values, 1)  # compiled, or taken from the cache
        n_updates = len(self._values)
        while True:
            best = min(self._timed(n_updates) for _ in range(_TRIALS))
            if best >= _CALIBRATION_S:
                return best / n_updates
            n_updates *= 2

    def _timed(self, n_updates: int) -> float:
        begin = time.thread_time()
        _update(self._values, n_updates)
        return time.thread_time() - begin


@compile_at_once(nogil=True)
def _update(values: npt.NDArray[np.float64], n_updates: int) -> None:
    size = len(values)
    for _ in range(n_updates // size):
        for i in range(size):
            values[i] = values[i] * 0.5 + 0.5
    for i in range(n_updates % size):
        values[i] = values[i] * 0.5 + 0.5


@dataclass(slots=True)
class Overlapped:
    """A collective, ready to run together with a computation.

    Parameters
    ----------
    begin, finish : callable
        Functions that start the collective and wait for it. If the collective is blocking,
        `begin` does nothing, and `finish` runs all of it.
    compute : callable
        Computation that runs between `begin` and `finish`.
    free : callable
        Function that frees the collective.
    """

    begin: Call
    finish: Call
    compute: Call
    free: Call = nothing

    def __call__(self) -> None:
        """Start, compute, and wait."""
        self.begin()
        self.compute()
        self.finish()

    def alone(self) -> None:
        """Run the collective alone."""
        self.begin()
        self.finish()


def overlapped_native(native: NativeCollective, compute: Call) -> Overlapped:
    """Return a call that overlaps MPI's own nonblocking collective with a computation."""
    requests: list[MPI.Request] = []
    return Overlapped(
        lambda: requests.append(native.start()), lambda: requests.pop().Wait(), compute
    )


def require_multiple_threads() -> None:
    """Raise `BindError` if MPI does not allow several threads to call it at the same time."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise BindError(
            "--computation: plans beside computation need MPI initialized with MPI_THREAD_MULTIPLE"
        )
