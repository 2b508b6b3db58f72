"""Time that a program computes beside non-blocking calls: observed, and agreed on by all ranks."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import numpy as np
from mpi4py import MPI

OBSERVED: Final = 6
"""Calls of a signature that are observed before ranks agree."""


class Observation:
    """Computation between the starts and the waits of one signature's calls.

    Attributes
    ----------
    agreed_s : float or None
        The longest of the ranks' usual computations in s, negative if none was seen; None until
        this rank knows it.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._n_started = 0
        self._agreeing: tuple[MPI.Request, Any, Any] | None = None
        self.agreed_s: float | None = None

    def note(self, seconds: float) -> None:
        """Note what one call left for computation."""
        if self._agreeing is None:
            self._times.append(seconds)

    def count(self, comm: MPI.Intracomm) -> bool:
        """Count a call, in the same order on all ranks; return whether they have just agreed.

        It waits for nobody: ranks may get to know it at different calls.

        Parameters
        ----------
        comm : MPI.Intracomm
            Whose other collectives all ranks start in the same order.
        """
        if self.agreed_s is not None:
            return False
        if self._agreeing is None:
            self._n_started += 1
            if self._n_started > OBSERVED:
                mine = np.array([median(self._times) if self._times else -1.0])
                longest = np.empty_like(mine)
                self._agreeing = comm.Iallreduce(mine, longest, MPI.MAX), mine, longest
            return False
        request, _, longest = self._agreeing
        if not request.Test():
            return False
        self.agreed_s = float(longest[0])
        return True

    def end(self) -> None:
        """Wait until ranks have agreed, if they have begun to: all of them have."""
        if self._agreeing is not None:
            self._agreeing[0].Wait()
