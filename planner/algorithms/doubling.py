"""Partners at distance 1, 2, 4, ... for any number of ranks."""

from __future__ import annotations

from planner.chunks import Ints


def last_exchange(me: Ints, size: int) -> Ints:
    """Return the last level k at which each position's partner ``me ^ 2**k`` exists.

    Examples
    --------
    >>> import numpy as np
    >>> last_exchange(np.arange(6), 6).tolist()
    [2, 2, 1, 1, 2, 2]
    """
    last = me * 0 - 1
    for level in range((size - 1).bit_length()):
        last[(me ^ (1 << level)) < size] = level
    return last
