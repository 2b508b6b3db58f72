"""Sizes of buffers that statistics count, in any form that mpi4py accepts."""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.dropin.arguments import DATATYPES, SEQUENCES, is_in_place


def first_of(given: Any, options: Any) -> Any:
    """Return the first buffer of a call on this rank; None if there is none."""
    for one in (*given, *options.values()) if options else given:
        if type(one) is np.ndarray or not is_in_place(one):
            return one
    return None


def bytes_of(given: Any, blocks: int) -> int:
    """Return the size of an argument in bytes, from its counts or, without them, its buffer.

    Return 0 if the size is unknown.
    """
    if given is None:
        return 0
    try:
        return int(_bytes_in(given, blocks))
    except Exception:  # not an error, as MPI has accepted the arguments
        return 0


def _bytes_in(given: Any, blocks: int) -> int:
    """Return the size of an argument in bytes; see `bytes_of`."""
    if not isinstance(given, SEQUENCES):
        return memoryview(given).nbytes // blocks
    counts: Any = None
    sizes: Any = None
    last, n_items = given[-1], len(given)
    if isinstance(last, DATATYPES):
        sizes = (MPI._typedict[last] if isinstance(last, str) else last).Get_size()
        n_items -= 1
    elif isinstance(last, SEQUENCES) and isinstance(last[0], MPI.Datatype):
        sizes = [datatype.Get_size() for datatype in last]
        n_items -= 1
    if n_items > 1:
        counts = given[1][0] if isinstance(given[1], tuple) else given[1]  # (counts, displacements)
    if counts is None:
        return memoryview(given[0]).nbytes // blocks
    if sizes is None:
        sizes = memoryview(given[0]).itemsize
    if isinstance(counts, np.ndarray):
        counts = counts.tolist()
    if isinstance(sizes, int):
        return sizes * (sum(counts) if isinstance(counts, SEQUENCES) else int(counts))
    return sum(map(mul, counts, sizes))
