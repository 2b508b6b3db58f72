"""Rabenseifner's reduce: halve vectors, then gather the chunks."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.building_blocks.halving import gather, reduce_scatter
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds


@algorithm("reduce", "rabenseifner", parts="power_of_two", best_for=("long",))
def rabenseifner(group: Group) -> Rounds:
    """Reduce-scatter by recursive halving, then gather at the root.

    Surplus ranks fold into a neighbour first, so any p will do; nearest
    partners come first, so operands stay in rank order.

    Notes
    -----
    2·log₂ q + 1 rounds at most for q = 2^⌊log₂ p⌋; about 2c a rank instead of the
    tree's ⌈log₂ p⌉·c at the root.

    References
    ----------
    Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    folding = fold(group.size, survivor=group.root)
    yield folding.fold(group)
    yield from reduce_scatter(group, folding)
    root = int(np.flatnonzero(folding.survivors == group.root)[0])
    yield from gather(group, folding, root)
