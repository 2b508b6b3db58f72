"""Least squares on logarithms of times, with a prior for costs and the same for all systems."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from collplan.fitting.terms import N_TERMS, groups_of_terms
from collplan.planner.arrays import Bools, Floats

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
