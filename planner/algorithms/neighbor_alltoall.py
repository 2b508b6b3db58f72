"""Algorithms of neighborhood collectives, whose ranks send along the edges of a graph."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm(
    "neighbor_alltoall",
    "linear",
    best_for=("short", "long", "shared"),
    streams=True,
    pipelines=("inside", "across"),
    at_once=True,
    tried_as=("flat",),
)
def linear(group: Group) -> Rounds:
    """Send every block straight to its neighbor, all at once, nearest rank first.

    Notes
    -----
    As many rounds as a rank has neighbors, as it sends one message at a time; a message per pair
    of neighbors. Blocks that a rank has for itself are copied.

    References
    ----------
    Hoefler, Träff, "Sparse collective operations for MPI", IPDPS 2009.
    """
    assert group.edges is not None
    source, dest = group.edges
    distance = (dest - source) % group.size
    edge = np.argsort(distance, kind="stable")
    sent, own = edge[distance[edge] > 0], edge[distance[edge] == 0]
    yield Round(
        Message(source[sent], dest[sent], at(group.input, sent), at(group.output, sent)),
        Copy(source[own], at(group.input, own), at(group.output, own)),
    )
