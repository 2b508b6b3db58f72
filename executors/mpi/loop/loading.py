"""Bring the compiled loop and reductions into this process, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collplan.executors.mpi.loop.loop import run_loop
from collplan.executors.mpi.loop.reductions import reduction_address
from collplan.executors.mpi.loop.state import RUN, STATE

if TYPE_CHECKING:
    Predefined = tuple[str, np.dtype[Any]]

_loaded: dict[Predefined | None, int] = {}


def is_loaded(reduction: Predefined | None) -> bool:
    """Return whether `load` takes no time."""
    return reduction in _loaded


def load(reduction: Predefined | None) -> int:
    """Compile the loop and a reduction, or take them from the cache.

    Parameters
    ----------
    reduction : (str, dtype) or None
        A predefined operation and what it works on.

    Returns
    -------
    int
        The reduction's address; 0 if there is none.
    """
    if reduction not in _loaded:
        nothing = np.zeros(1, dtype=STATE)
        run_loop(nothing.ctypes.data, RUN)
        _loaded[reduction] = 0 if reduction is None else reduction_address(*reduction)
    return _loaded[reduction]
