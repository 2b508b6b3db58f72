"""Repeated calls of a C function in compiled code, as programs without Python make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.loop.records import REPEATED


class RepeatedCall:
    """A C function that returns an int, and its arguments.

    Parameters
    ----------
    function : int
        Address of the function.
    arguments : sequence of int
        Integers, handles and addresses, whose memory the caller keeps alive; at most ten.
    """

    def __init__(self, function: int, arguments: Sequence[int]) -> None:
        self._row = np.zeros(1, dtype=REPEATED)
        self._row["function"] = function
        for i, argument in enumerate(arguments):
            self._row[f"a{i}"] = argument
        self._repeat = entry("repeat")

    def run(self, n_calls: int) -> Iterator[int]:
        """Call the function `n_calls` times, and yield each result that is not 0.

        Python can handle a result before the calls go on.
        """
        self._row["n_left"] = n_calls
        while found := self._repeat(self._row.ctypes.data):
            yield found
