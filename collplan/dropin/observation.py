"""Observation of the time that a program computes beside non-blocking calls."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import numpy as np
from mpi4py import MPI

OBSERVED: Final = 6
"""Number of calls of a signature that are observed before ranks agree on the time."""


class Observation:
    """Times of computation between the starts and the waits of calls with one signature.

    Attributes
    ----------
    agreed_s : float or None
        Largest of the ranks' median computation times in seconds, negative if no rank has
        observed any; None until this rank knows it.
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
        """Count a call; return whether `agreed_s` has just become known.

        Ranks agree by a non-blocking allreduce, so they may learn the time at different
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
        """Wait for the allreduce, if this rank and so all ranks have started it."""
        if self._agreeing is not None:
            self._agreeing[0].Wait()
