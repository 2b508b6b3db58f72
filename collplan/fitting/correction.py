"""Statistical correction of modeled times by a Gaussian process on what the model leaves.

The logarithm of measured over modeled time is taken as a sum of effects: of the size alone, the
system, the collective, the algorithm, and some of them together. Effects change slowly with the
logarithms of the bytes, of the ranks, and of the ranks per node. An effect that few points show
shrinks to 0. See Rasmussen, Williams, *Gaussian Processes for Machine Learning*, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.fitting.names import algorithm_of
from collplan.fitting.points import MeasuredPoint
from collplan.planner.arrays import Floats, Ints

SIZE_SCALE: Final = 8.0
"""Binary logarithm of the ratio of two sizes at which an effect of either is independent."""
CLOSE_SIZE_SCALE: Final = 0.8
"""The same for effects of an algorithm on one system, which change at limits of protocols."""
RANKS_SCALE: Final = 11.0
"""The same for numbers of ranks."""
PER_NODE_SCALE: Final = 2.0
"""The same for ranks per node."""
NOISE: Final = 0.018
"""Variance of a single point."""
MOST_POINTS: Final = 5000
"""Number of points above which every second, third, ... one is used."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that points share if they agree in some names.

    Parameters
    ----------
    title : str
        Name in tables.
    names : tuple of str
        Names in which points agree: of "system", "kind", "ours", "algorithm", "map" and "job".
    variance : float
        Variance of the effect.
    scale : float
        Scale of sizes.
    """

    title: str
    names: tuple[str, ...]
    variance: float
    scale: float = SIZE_SCALE


EFFECTS: Final = (
    Effect("size", (), 0.063),
    Effect("system", ("system",), 0.067),
    Effect("collective", ("kind",), 0.024),
    Effect("messages", ("kind", "ours"), 0.05),
    Effect("algorithm", ("kind", "algorithm"), 0.1),
    Effect("messages on a system", ("kind", "ours", "system", "map"), 0.052),
    Effect(
        "algorithm on a system",
        ("kind", "algorithm", "system", "map"),
        0.041,
        CLOSE_SIZE_SCALE,
    ),
    Effect("job", ("system", "job"), 0.018),
)
"""Effects of a fit to clusters; the variances are those of the largest likelihood of jobs that
were left out, of the points of `benchmarks/real_clusters.py`."""


class Features:
    """Names and numbers of points on which effects depend.

    Parameters
    ----------
    points : sequence of MeasuredPoint
    """

    def __init__(self, points: Sequence[MeasuredPoint]) -> None:
        algorithms = [algorithm_of(point) for point in points]
        self.names: dict[str, np.ndarray[tuple[int], np.dtype[np.str_]]] = {
            "system": np.array([point.system for point in points]),
            "kind": np.array([point.collective for point in points]),
            "job": np.array([point.job for point in points]),
            "map": np.array([point.mapping for point in points]),
            "ours": np.array([one.name if one else "" for one in algorithms]),
            "algorithm": np.array(
                [
                    f"{one.stem} {one.segment}"
                    if one and one.stem != "default"
                    else point.algorithm
                    for one, point in zip(algorithms, points, strict=True)
                ]
            ),
        }
        self.size = np.log2([max(1, point.n_bytes) for point in points])
        self.ranks = np.log2([point.layout.n_ranks for point in points])
        self.per_node = np.log2([_per_node(point) for point in points])

    def take(self, rows: Ints) -> Features:
        """Return the features of some points."""
        found = Features.__new__(Features)
        found.names = {name: column[rows] for name, column in self.names.items()}
        found.size, found.ranks = self.size[rows], self.ranks[rows]
        found.per_node = self.per_node[rows]
        return found


def _per_node(point: MeasuredPoint) -> float:
    return point.layout.n_ranks / point.layout.n_nodes


def _decay(one: Floats, other: Floats, scale: float) -> Floats:
    found: Floats = np.exp(-np.abs(one[:, None] - other[None, :]) / scale)
    return found


def covariance(one: Features, other: Features, effects: Sequence[Effect]) -> Floats:
    """Return the covariance of the effects on two sets of points."""
    shared = _decay(one.ranks, other.ranks, RANKS_SCALE)
    shared *= _decay(one.per_node, other.per_node, PER_NODE_SCALE)
    sizes = {
        scale: _decay(one.size, other.size, scale) * shared
        for scale in {effect.scale for effect in effects}
    }
    agree = {
        name: one.names[name][:, None] == other.names[name][None, :]
        for name in {name for effect in effects for name in effect.names}
    }
    found = np.zeros(shared.shape)
    for effect in effects:
        part = effect.variance * sizes[effect.scale]
        for name in effect.names:
            part *= agree[name]
        found += part
    return found


class Correction:
    """Factor on modeled times that was learned from points.

    Parameters
    ----------
    features : Features
        Features of the points.
    logs : ndarray of float64, shape (n_points,)
        Logarithms of the ratios of measured to modeled times.
    effects : sequence of Effect
        Effects to learn.
    """

    def __init__(
        self, features: Features, logs: Floats, effects: Sequence[Effect] = EFFECTS
    ) -> None:
        step = -(-len(logs) // MOST_POINTS)
        rows = np.arange(0, len(logs), step)
        self.features, self.effects = features.take(rows), effects
        inner = covariance(self.features, self.features, effects) + NOISE * np.eye(len(rows))
        self._factor = np.linalg.cholesky(inner)
        half = np.linalg.solve(self._factor, logs[rows])
        self._weights = np.linalg.solve(self._factor.T, half)

    def predict(self, features: Features) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the logarithms of factors for other points."""
        outer = covariance(features, self.features, self.effects)
        explained = np.linalg.solve(self._factor, outer.T)
        total = NOISE + sum(effect.variance for effect in self.effects)
        variance = np.maximum(1e-6, total - (explained**2).sum(axis=0))
        return outer @ self._weights, np.sqrt(variance)
