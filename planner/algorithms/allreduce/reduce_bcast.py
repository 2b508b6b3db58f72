"""Allreduce as a reduce to rank 0 and a broadcast."""

from __future__ import annotations

from collplan.planner.algorithms.bcast.binomial import binomial as bcast_binomial
from collplan.planner.algorithms.reduce.binomial import to_rank
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds


@algorithm("allreduce", "reduce_bcast", tree="binomial")
def reduce_bcast(group: Group) -> Rounds:
    """Reduce up a binomial tree to rank 0, then broadcast down it.

    Notes
    -----
    2·⌈log₂ p⌉ rounds; rank 0 sends ⌈log₂ p⌉·c.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield from to_rank(group, 0)
    yield from bcast_binomial(group)
