"""Summaries of repeated measurements, and the rule that decides which of two is faster.

Every comparison of times, in runs, benchmarks, tuning tables and exports, uses medians,
their 95 % intervals from this module, and `is_faster`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

LEAST: Final = 6
"""Smallest number of measurements whose median has a 95 % interval within their range."""
_RISK: Final = 0.025
"""The probability that the median lies beyond one end of its interval."""

Times = Sequence[float] | npt.NDArray[np.float64]


class Interval(Protocol):
    """The 95 % interval of the median of `n` measurements, in s."""

    @property
    def low_s(self) -> float:
        """Return the lower end of the interval."""

    @property
    def high_s(self) -> float:
        """Return the upper end of the interval."""

    @property
    def n(self) -> int:
        """Return the number of measurements."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of repeated measurements of the same quantity, in s.

    Parameters
    ----------
    n : int
        Number of measurements.
    median_s, mean_s, min_s, max_s : float
        Statistics of all measurements; none is left out as an outlier.
    low_s, high_s : float
        Ends of the 95 % interval of the median.
    """

    n: int
    median_s: float
    mean_s: float
    low_s: float
    high_s: float
    min_s: float
    max_s: float

    def to_json(self) -> dict[str, float | tuple[float, float]]:
        """Return the values that reports show: median, mean, interval and minimum."""
        return {
            "median_s": self.median_s,
            "mean_s": self.mean_s,
            "ci95_s": (self.low_s, self.high_s),
            "min_s": self.min_s,
        }


def summarize(times: Times) -> Summary:
    """Summarize measurements, shape (n,), in s.

    Raises
    ------
    ValueError
        If there are fewer than 2: one measurement has no interval.

    Examples
    --------
    >>> summary = summarize([1.0, 2.0, 3.0, 6.0])
    >>> summary.median_s, summary.mean_s, summary.min_s
    (2.5, 3.0, 1.0)
    >>> summary.low_s, summary.high_s
    (1.0, 6.0)
    """
    values = np.asarray(times, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"{values.size} measurements have no interval; make 2 or more")
    low, high = median_interval(values)
    return Summary(
        n=len(values),
        median_s=float(np.median(values)),
        mean_s=float(values.mean()),
        low_s=low,
        high_s=high,
        min_s=float(values.min()),
        max_s=float(values.max()),
    )


def median_interval(values: Times) -> tuple[float, float]:
    """Return the 95 % interval of the median of measurements, shape (n,).

    Both ends are measurements. The median of their distribution is below the k-th smallest
    of n measurements with the probability that fewer than k of n fair coins show heads.
    Fewer than `LEAST` measurements have no such interval; for them, the smallest and the
    largest measurement are returned.

    Examples
    --------
    >>> median_interval([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    (1.0, 6.0)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    k = _n_beyond(len(ordered))
    return float(ordered[k]), float(ordered[-1 - k])


@cache
def _n_beyond(n: int) -> int:
    """Return the number of measurements below the interval, which equals that above it."""
    below, k = 1 / 2**n, 0
    while below + comb(n, k + 1) / 2**n <= _RISK:
        k += 1
        below += comb(n, k) / 2**n
    return k


def is_faster(one: Interval, other: Interval) -> bool:
    """Return whether `one` is faster than `other` beyond noise: its whole interval is below.

    The result is False if one of them has fewer than `LEAST` measurements.

    Examples
    --------
    >>> quick, slow = summarize([1.0, 1.1, 1.2] * 2), summarize([2.0, 2.1, 2.2] * 2)
    >>> is_faster(quick, slow), is_faster(slow, quick), is_faster(slow, slow)
    (True, False, False)
    """
    return min(one.n, other.n) >= LEAST and one.high_s < other.low_s
