"""Broadcast along a chain of ranks."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds


@algorithm("bcast", "chain", tree="any", streams=True, pipelines=("across",))
def chain(group: Group) -> Rounds:
    """Pass the vector from rank to rank, beginning at the root.

    Notes
    -----
    p - 1 rounds; every rank but the last sends c. LogGP:
    (p - 1)·(2o + L + (c - 1)·G); with s segments, p - 2 + s steps of c/s.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    vector = group.whole(group.output)
    for hop in range(group.size - 1):
        yield Round(Message(group.from_root(hop), group.from_root(hop + 1), vector, vector))
