"""Fit of all systems of a set of points, and predictions with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from collplan.fitting.correction import EFFECTS, Correction, Effect, Features
from collplan.fitting.names import MeasuredAlgorithm, algorithm_of
from collplan.fitting.paths import PathCounter
from collplan.fitting.points import LATENCY, ROUND_TRIP_LINKS, MeasuredPoint, RankLayout
from collplan.fitting.round_tables import round_table
from collplan.fitting.terms import (
    COPIES,
    MESSAGES,
    N_TERMS,
    PER_LINK,
    groups_of_terms,
    level_weights,
    size_weights,
    start_costs,
    waits_of,
)
from collplan.planner.arrays import Bools, Floats, Ints
from collplan.specs import Machine
from collplan.specs.presets import preset_names

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


PRIOR: Final = 4.0
"""Weight of the square of a cost's logarithm, relative to its start, in squared errors."""
SMOOTH: Final = 5.0
"""Weight of the square of the difference of such logarithms between neighbors."""
OUTLIER: Final = 0.5
"""Logarithm of the ratio of a measured time to its model from which its weight is reduced."""
DETERMINED: Final = 0.7
"""Largest ratio of the standard deviation of a logarithm after and before the fit for which the
data determine a cost."""
_STEPS: Final = 25
_LONGEST_STEP: Final = 1.0
_SMALL: Final = 1e-3


@dataclass(frozen=True, eq=False)
class FittedCosts:
    """Costs that were fitted.

    Parameters
    ----------
    logs : ndarray of float64, shape (N_TERMS,)
        Logarithms of the costs, relative to their starts.
    is_determined : ndarray of bool, shape (N_TERMS,)
        Costs that depend on the data more than on the starts.
    """

    logs: Floats
    is_determined: Bools


def prior_precision() -> Floats:
    """Return the precision of the logarithms of costs before a fit, shape (N_TERMS, N_TERMS)."""
    found = PRIOR * np.eye(N_TERMS)
    for group in groups_of_terms():
        for one, other in pairwise(group):
            found[[one, other], [one, other]] += SMOOTH
            found[[one, other], [other, one]] -= SMOOTH
    return found


def fit_costs(counts: Floats, seconds: Floats, starts: Floats, center: Floats) -> FittedCosts:
    """Fit the costs of terms to times.

    The sum of squares of the logarithms of ratios of measured to modeled times is minimized by
    Gauss-Newton steps. Outliers count less (Huber 1964). The prior keeps costs without data.

    Parameters
    ----------
    counts : ndarray of float64, shape (n_points, N_TERMS)
        Terms of each point.
    seconds : ndarray of float64, shape (n_points,)
        Measured times.
    starts : ndarray of float64, shape (n_points, N_TERMS)
        Costs in ns at which each point starts: those of its system.
    center : ndarray of float64, shape (N_TERMS,)
        Logarithms of the costs relative to their starts that are expected.
    """
    precision, logs = prior_precision(), center.copy()
    measured, scaled = np.log(seconds * 1e9), counts * starts
    posterior = precision
    for _ in range(_STEPS if len(seconds) else 0):
        parts = scaled * np.exp(logs)
        total = parts.sum(axis=1)
        error = measured - np.log(total)
        weight = 1 / np.maximum(1, np.abs(error) / OUTLIER)
        slopes = parts / total[:, None]
        posterior = (slopes * weight[:, None]).T @ slopes + precision
        gradient = slopes.T @ (weight * error) - precision @ (logs - center)
        step = np.clip(np.linalg.solve(posterior, gradient), -_LONGEST_STEP, _LONGEST_STEP)
        logs = logs + step
        if np.abs(step).max() < _SMALL:
            break
    after, before = (np.sqrt(np.diag(np.linalg.inv(one))) for one in (posterior, precision))
    return FittedCosts(logs, after < DETERMINED * before)


NINETY: Final = 1.645
"""Standard deviations on either side of the mean that hold 90 % of a normal distribution."""


class Prediction(NamedTuple):
    """Predicted times in seconds, with 90 % intervals; arrays of shape (n_points,)."""

    seconds: Floats
    low: Floats
    high: Floats


def preset_of(system: str) -> Machine:
    """Return the machine of a system: its preset, with or without ``orfeo-``, or the defaults."""
    for name in (system, f"orfeo-{system}"):
        if name in preset_names():
            return Machine.model_validate(name)
    return Machine.model_validate({"nodes": 1})


@dataclass(frozen=True, eq=False)
class CountedPoints:
    """Points with their terms, which do not depend on a fit.

    Parameters
    ----------
    points : list of MeasuredPoint
    counts, starts : ndarray of float64, shape (n_points, N_TERMS)
        Terms of each point, and the costs by the preset of its system.
    features : Features
    """

    points: list[MeasuredPoint]
    counts: Floats
    starts: Floats
    features: Features

    @classmethod
    def of(cls, points: Sequence[MeasuredPoint]) -> CountedPoints:
        """Count the terms of points; points of unknown algorithms are left out."""
        systems = {point.system for point in points}
        costs = {system: start_costs(preset_of(system).network) for system in systems}
        counts = count_terms(points, costs)
        known = np.flatnonzero(~np.isnan(counts[:, 0]))
        kept = [points[row] for row in known.tolist()]
        starts = np.array([costs[point.system] for point in kept]).reshape(len(kept), N_TERMS)
        return cls(kept, counts[known], starts, Features(kept))

    @property
    def seconds(self) -> Floats:
        """Return the measured times."""
        return np.array([point.seconds for point in self.points])

    @property
    def system(self) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        """Return the system of each point."""
        return self.features.names["system"]

    def take(self, rows: Ints) -> CountedPoints:
        """Return some of the points."""
        kept = [self.points[row] for row in rows.tolist()]
        return CountedPoints(kept, self.counts[rows], self.starts[rows], self.features.take(rows))


class ClusterModel:
    """Costs of each system and a correction, fitted to points.

    Parameters
    ----------
    counted : CountedPoints
        Points to fit to; may have several systems.
    is_fitted : bool
        Whether costs are fitted; they are those of the presets otherwise.
    effects : sequence of Effect
        Effects of the correction; none without a correction.
    """

    def __init__(
        self,
        counted: CountedPoints,
        *,
        is_fitted: bool = True,
        effects: Sequence[Effect] = EFFECTS,
    ) -> None:
        self.shared, self.systems = _fit(counted) if is_fitted else _unfitted(counted)
        rows = [row for row, point in enumerate(counted.points) if point.collective != LATENCY]
        collectives = counted.take(np.array(rows, dtype=np.int64))
        logs = np.log(collectives.seconds / self.modeled_s(collectives))
        self._spread = float(np.std(logs)) if len(logs) else 1.0
        self.correction = None
        if effects and len(logs):
            self.correction = Correction(collectives.features, logs, effects)

    def modeled_s(self, counted: CountedPoints) -> Floats:
        """Return the times of points in seconds by fitted costs, without the correction."""
        logs = [self.systems.get(system, self.shared).logs for system in counted.system.tolist()]
        factors = np.exp(np.array(logs).reshape(len(logs), N_TERMS))
        return np.asarray((counted.counts * counted.starts * factors).sum(axis=1) * 1e-9)

    def predict(self, counted: CountedPoints) -> Prediction:
        """Return predicted times of points, with intervals that hold 90 % of measured times."""
        modeled = self.modeled_s(counted)
        if self.correction is None:
            mean, spread = np.zeros(len(modeled)), np.full(len(modeled), self._spread)
        else:
            mean, spread = self.correction.predict(counted.features)
        seconds = modeled * np.exp(mean)
        reach = np.exp(NINETY * spread)
        return Prediction(seconds, seconds / reach, seconds * reach)


def _fit(counted: CountedPoints) -> tuple[FittedCosts, Mapping[str, FittedCosts]]:
    """Fit what all systems have in common, then each system around it."""
    seconds = counted.seconds
    shared = fit_costs(counted.counts, seconds, counted.starts, np.zeros(N_TERMS))
    systems = {}
    for system in sorted({*counted.system.tolist()}):
        rows = np.flatnonzero(counted.system == system)
        systems[system] = fit_costs(
            counted.counts[rows], seconds[rows], counted.starts[rows], shared.logs
        )
    return shared, systems


def _unfitted(counted: CountedPoints) -> tuple[FittedCosts, Mapping[str, FittedCosts]]:
    return FittedCosts(np.zeros(N_TERMS), np.zeros(N_TERMS, dtype=np.bool_)), {}
