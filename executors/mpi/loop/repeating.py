"""Repeated calls of a C function, without Python between them."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop.calls import call, inner, longs, record_at
from collplan.executors.mpi.loop.records import N_ARGUMENTS, REPEATED, REPEATED_AT
from collplan.executors.mpi.loop.state import Long


@inner
def repeat(address: int) -> Long:
    """Call a function as often as its record says; stop at an outcome other than 0.

    It is called with the largest number of arguments of any function, like those that start a
    collective.

    Parameters
    ----------
    address : int
        Address of a record of REPEATED, whose number of calls counts down.

    Returns
    -------
    int
        Outcome of the last call.
    """
    row = record_at(address, 0, REPEATED)
    words = longs(address + REPEATED_AT, N_ARGUMENTS)
    while row.n_left > 0:
        row.n_left -= 1
        first = (words[0], words[1], words[2], words[3], words[4])
        last = (words[5], words[6], words[7], words[8], words[9])
        found = np.int64(call(row.function, (*first, *last)))
        if found != 0:
            return found
    return np.int64(0)
