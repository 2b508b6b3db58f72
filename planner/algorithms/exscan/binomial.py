"""Exclusive scan up and down a binomial tree, shifted by one rank."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds
from collplan.planner.algorithms.scan.binomial import prefixes


@algorithm("exscan", "binomial", streams=True)
def binomial(group: Group) -> Rounds:
    """Scan all ranks but the last up and down a binomial tree, then shift by one.

    Notes
    -----
    At most 2·⌈log₂ (p - 1)⌉ rounds; at most 2p reductions in all.

    References
    ----------
    Brent, Kung 1982.
    """
    if group.size == 1:
        return
    inclusive = group.scratch_slots(1)
    yield from prefixes(group, inclusive, group.size - 1)
    me = group.positions[:-1]
    yield Round(Message(me, me + 1, group.whole(inclusive), group.whole(group.output)))
