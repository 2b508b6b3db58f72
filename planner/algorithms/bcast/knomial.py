"""Broadcast down a k-nomial tree."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, option_int


@algorithm("bcast", "knomial", options={"radix": 4}, tree="any")
def knomial(group: Group) -> Rounds:
    """Send down a tree in which each holder feeds radix - 1 others a level.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most; the root sends as many vectors.
    Radix 2 is the binomial tree. Larger radices wait for fewer latencies.

    References
    ----------
    Thakur, Rabenseifner, Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    # A larger radix than the group makes the same tree: the root sends to all.
    radix = min(option_int(group, "radix", 2), max(2, group.size))
    vector = group.whole(group.output)
    span = 1
    while span * radix < group.size:
        span *= radix
    while span:
        holders = np.arange(0, group.size, span * radix)
        for child in range(1, radix):
            sending = holders[holders + child * span < group.size]
            yield Round(
                Message(
                    group.from_root(sending),
                    group.from_root(sending + child * span),
                    vector,
                    vector,
                )
            )
        span //= radix
