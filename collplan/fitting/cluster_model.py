"""Fit of all systems of a set of points, and predictions with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from collplan.fitting.correction import EFFECTS, Correction, Effect, Features
from collplan.fitting.counting import count_terms
from collplan.fitting.least_squares import FittedCosts, fit_costs
from collplan.fitting.points import LATENCY, MeasuredPoint
from collplan.fitting.terms import N_TERMS, start_costs
from collplan.planner.arrays import Floats, Ints
from collplan.specs import Machine
from collplan.specs.presets import preset_names

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
