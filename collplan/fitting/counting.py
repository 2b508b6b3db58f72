"""Terms of measured points, counted along the paths of their algorithms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from collplan.fitting.names import MeasuredAlgorithm, algorithm_of
from collplan.fitting.paths import PathCounter
from collplan.fitting.points import LATENCY, ROUND_TRIP_LINKS, MeasuredPoint, RankLayout
from collplan.fitting.round_tables import round_table
from collplan.fitting.terms import (
    COPIES,
    MESSAGES,
    N_TERMS,
    PER_LINK,
    level_weights,
    size_weights,
    waits_of,
)
from collplan.planner.arrays import Floats, Ints

SPLIT: Final = 0.5
"""Cost of a block that is a message of its own among others, as a part of a further message's."""


def count_terms(points: Sequence[MeasuredPoint], costs: Mapping[str, Floats]) -> Floats:
    """Return the terms of points.

    Parameters
    ----------
    points : sequence of MeasuredPoint
    costs : mapping of str to ndarray, shape (N_TERMS,)
        Costs in ns of each system, by which longest paths are found.

    Returns
    -------
    ndarray of float64, shape (n_points, N_TERMS)
        Numbers of terms; not a number for algorithms that collplan does not have.
    """
    found = np.full((len(points), N_TERMS), np.nan)
    together: defaultdict[tuple[str, int, MeasuredAlgorithm], list[int]] = defaultdict(list)
    layouts: dict[int, RankLayout] = {}
    for place, point in enumerate(points):
        if point.collective == LATENCY:
            found[place] = _round_trip(point)
            continue
        algorithm = algorithm_of(point)
        if algorithm is not None:
            layouts[id(point.layout)] = point.layout
            together[point.system, id(point.layout), algorithm].append(place)
    for (system, layout, algorithm), rows in together.items():
        n_bytes = np.array([points[row].n_bytes for row in rows], dtype=np.float64)
        sizes, back = np.unique(n_bytes, return_inverse=True)
        counts = _counts(algorithm, layouts[layout], sizes, costs[system])
        found[rows] = counts[back]
    return found


def _round_trip(point: MeasuredPoint) -> Floats:
    counts = np.zeros(N_TERMS)
    link = ROUND_TRIP_LINKS.index(point.mapping)
    counts[waits_of(link)] = size_weights(np.array(float(point.n_bytes)))
    return counts


def _counts(
    algorithm: MeasuredAlgorithm, layout: RankLayout, n_bytes: Floats, costs: Floats
) -> Floats:
    """Return the terms of an algorithm for several sizes, shape (n_sizes, N_TERMS)."""
    n_ranks = layout.n_ranks
    table = round_table(
        algorithm.kind, algorithm.name, algorithm.options, n_ranks, algorithm.at_once
    )
    counts = PathCounter(table, layout, n_bytes, costs, algorithm.segment).counts()
    link = farthest_link(layout)
    copies = algorithm.copies + algorithm.copies_per_round * np.log2(n_ranks)
    if copies:
        level = level_weights(n_bytes * layout.per_node)
        counts[:, COPIES] += copies * level * n_bytes[:, None]
    if algorithm.extra:
        counts[:, waits_of(link)] += algorithm.extra * size_weights(n_bytes / n_ranks)
    if algorithm.is_split:
        twice = 2 if algorithm.kind == "allreduce" else 1
        counts[:, link * PER_LINK + MESSAGES] += SPLIT * twice * (n_ranks - 1)
    return counts


def farthest_link(layout: RankLayout) -> int:
    """Return the place in `LINKS` of the farthest link between ranks of a layout."""
    if layout.n_nodes > 1:
        return 2
    domains: Ints = np.unique(layout.domain)
    return int(len(domains) > 1)
