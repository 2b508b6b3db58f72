"""Recorded times: when each task of one rank's program started and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collplan.executors.mpi.program.program import Program

Longs = npt.NDArray[np.int64]


class Recorder:
    """Times of the tasks of one rank at the last start; pass it to `bind`.

    A message starts right before it is handed to MPI and ends when its completion
    is seen; a local task starts right before its work and ends right after.

    Attributes
    ----------
    start_ns, end_ns : ndarray of int64, shape (n_tasks,)
        Written by the loop, in the order of the program.
    """

    def __init__(self) -> None:
        self.start_ns: Longs = np.zeros(0, dtype=np.int64)
        self.end_ns: Longs = np.zeros(0, dtype=np.int64)
        self._by_row: Longs = np.zeros(0, dtype=np.int64)

    def prepare(self, program: Program) -> None:
        """Make room for a program's tasks."""
        self.start_ns, self.end_ns = np.zeros((2, program.n_tasks), dtype=np.int64)
        self._by_row = np.argsort(program.row)

    def times(self) -> Longs:
        """Return starts and ends in ns of this process's monotonic clock.

        Returns
        -------
        ndarray of int64, shape (2, n_tasks)
            In the order of the tasks' rows in the plan.
        """
        return np.array((self.start_ns, self.end_ns))[:, self._by_row]
