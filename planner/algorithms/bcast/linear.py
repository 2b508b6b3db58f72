"""Broadcast, the root to everyone: a star."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds


@algorithm("bcast", "linear", tree="any", best_for=("shared",), streams=True, pipelines=("inside",))
def linear(group: Group) -> Rounds:
    """Send the vector from the root to every other rank.

    Notes
    -----
    p - 1 rounds, as the root sends one at a time; the root sends (p - 1)·c.
    LogGP: 2o + L + (p - 2)·max(g, o) + (p - 1)·(c - 1)·G.

    References
    ----------
    Hartmann et al., "A decomposition approach for optimizing the performance
    of MPI libraries", 2006: the star topology.
    """
    vector = group.whole(group.output)
    yield Round(Message(group.root, group.others, vector, vector))
