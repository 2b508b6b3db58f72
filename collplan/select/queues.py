"""When servers begin what comes to them, each in the order in which it comes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.arrays.csr import run_starts

Floats = npt.NDArray[np.float64]


def first_come(server: Ints, ready: Floats, works: Floats) -> Floats:
    """Return when every job begins at its server, which serves one at a time.

    Parameters
    ----------
    server : ndarray of int64, shape (n_jobs,)
    ready, works : ndarray of float64, shape (n_jobs,)
        When each job comes, and how long it takes. Of those that come together
        the first in the array is served first.

    Examples
    --------
    >>> first_come(np.array([0, 1, 0, 0]), np.array([0., 0., 1., 9.]), np.array([5., 1., 2., 1.]))
    array([0., 0., 5., 9.])
    """
    order = np.lexsort((ready, server))
    place, comes, lasts = server[order], ready[order], works[order]
    before = np.cumsum(lasts) - lasts
    is_first = run_starts(place)
    before -= before[is_first][np.cumsum(is_first) - 1]
    # Never idle while there is work: from some job on they follow each other.
    idle = comes - before
    apart = np.cumsum(is_first) * (np.ptp(idle) + 1.0 if len(idle) else 1.0)
    begin = np.empty_like(comes)
    begin[order] = before + np.maximum.accumulate(idle + apart) - apart
    return begin
