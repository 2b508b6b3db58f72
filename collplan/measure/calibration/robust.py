"""Estimates that a few wild measurements do not move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value that halves the weights.

    Examples
    --------
    >>> weighted_median([1.0, 2.0, 9.0], [1.0, 1.0, 3.0])
    9.0
    """
    order = np.argsort(values, kind="stable")
    total = np.cumsum(np.asarray(weights, dtype=np.float64)[order])
    middle = int(np.searchsorted(total, total[-1] / 2))
    return float(np.asarray(values, dtype=np.float64)[order][middle])


def theil_sen(
    x: Sequence[float], y: Sequence[float], *, is_relative: bool = False
) -> tuple[float, float]:
    """Return intercept and slope: the median of the slopes between all points.

    Parameters
    ----------
    x, y : sequence of float, shape (n,)
        The points; pairs far apart in x count more, by their distance.
    is_relative : bool
        Let errors grow with y, which is above 0, as those of times do: pairs
        count by their distance over the sum of their y.

    References
    ----------
    .. [1] P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, 1968.

    Examples
    --------
    >>> theil_sen([0, 1, 2, 3, 4], [1, 3, 5, 70, 9])
    (1.0, 2.0)
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    i, j = np.triu_indices(len(across), k=1)
    distance = np.abs(across[j] - across[i])
    apart = distance > 0
    if not apart.any():
        return float(np.median(up)), 0.0
    i, j, distance = i[apart], j[apart], distance[apart]
    slopes = (up[j] - up[i]) / (across[j] - across[i])
    weights = distance / (up[i] + up[j]) if is_relative else distance
    slope = weighted_median(slopes.tolist(), weights.tolist())
    return float(np.median(up - slope * across)), slope


def step(levels: Sequence[float]) -> int:
    """Return where a sequence steps up: how many come before, if it had one step only.

    Parameters
    ----------
    levels : sequence of float, shape (n,)
        At least 2.

    Examples
    --------
    >>> step([1.0, 1.1, 1.0, 2.0, 2.1])
    3
    """
    values = np.asarray(levels, dtype=np.float64)

    def deviation(cut: int) -> float:
        parts = (values[:cut], values[cut:])
        return float(sum(np.abs(part - np.median(part)).sum() for part in parts))

    return min(range(1, len(values)), key=deviation)
