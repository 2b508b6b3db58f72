"""Observation of the time that a program computes during non-blocking calls."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import numpy as np
from mpi4py import MPI

OBSERVED: Final = 6
"""Number of observed calls of a signature before ranks agree on a computation time."""


class Observation:
    """Computation times between the starts and the waits of calls with one signature.

    Attributes
    ----------
    agreed_s : float or None
        Maximum over ranks of the median computation time in seconds; negative if no rank has
        observed a time, and None until this rank knows the result.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._n_started = 0
        self._agreeing: tuple[MPI.Request, Any, Any] | None = None
        self.agreed_s: float | None = None

    def note(self, seconds: float) -> None:
        """Add the time between the start of a call and the wait for it."""
        if self._agreeing is None:
            self._times.append(seconds)

    def count(self, comm: MPI.Intracomm) -> bool:
        """Count a call; return whether `agreed_s` has become known in this call.

        Ranks agree by a non-blocking allreduce, so they may receive its result in different
        calls.

        Parameters
        ----------
        comm : MPI.Intracomm
            Communicator on which all ranks start collectives in the same order.
        """
        if self.agreed_s is not None:
            return False
        if self._agreeing is None:
            self._n_started += 1
            if self._n_started > OBSERVED:
                own = np.array([median(self._times) if self._times else -1.0])
                longest = np.empty_like(own)
                self._agreeing = comm.Iallreduce(own, longest, MPI.MAX), own, longest
            return False
        request, _, longest = self._agreeing
        if not request.Test():
            return False
        self.agreed_s = float(longest[0])
        return True

    def end(self) -> None:
        """Wait for the allreduce if this rank, and therefore every rank, has started it."""
        if self._agreeing is not None:
            self._agreeing[0].Wait()
