"""What repeated measurements say: median, mean and its confidence interval, minimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """Several measurements of the same thing, in s.

    Parameters
    ----------
    n : int
        How many there were.
    median_s, mean_s, min_s, max_s : float
        Of all of them; nothing is left out as an outlier.
    ci95_s : tuple of float
        The 95 % confidence interval of the mean.
    """

    n: int
    median_s: float
    mean_s: float
    ci95_s: tuple[float, float]
    min_s: float
    max_s: float

    def to_json(self) -> dict[str, float | tuple[float, float]]:
        """Return what reports name: median, mean, interval and minimum."""
        return {
            "median_s": self.median_s,
            "mean_s": self.mean_s,
            "ci95_s": self.ci95_s,
            "min_s": self.min_s,
        }


def summarize(times: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Summary:
    """Summarize measurements, shape (n,), in s.

    The interval is Student's: the mean ± the 0.975 quantile of t with n - 1
    degrees of freedom times the standard error, with the sample's standard
    deviation.

    Raises
    ------
    ValueError
        If there are fewer than 2: one measurement has no interval.

    Examples
    --------
    >>> summary = summarize([1.0, 2.0, 3.0, 6.0])
    >>> summary.median_s, summary.mean_s, summary.min_s
    (2.5, 3.0, 1.0)
    >>> [round(end, 3) for end in summary.ci95_s]
    [-0.437, 6.437]
    """
    values = np.asarray(times, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"{values.size} measurements have no interval; make 2 or more")
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = student_quantile(0.975, len(values) - 1) * error
    return Summary(
        n=len(values),
        median_s=float(np.median(values)),
        mean_s=mean,
        ci95_s=(mean - half, mean + half),
        min_s=float(values.min()),
        max_s=float(values.max()),
    )


def is_slower(one: Summary, other: Summary) -> bool:
    """Return whether `one` is slower than `other` beyond noise.

    It is where the 95 % intervals of the means do not overlap, and the
    medians agree about who is slower: a few outliers move only the means.

    Examples
    --------
    >>> quick, slow = summarize([1.0, 1.1, 1.2]), summarize([2.0, 2.1, 2.2])
    >>> is_slower(slow, quick), is_slower(quick, slow), is_slower(slow, slow)
    (True, False, False)
    """
    return one.ci95_s[0] > other.ci95_s[1] and one.median_s > other.median_s


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution.

    Parameters
    ----------
    probability : float
        Between 0 and 1, both excluded.
    degrees : int
        Degrees of freedom, at least 1.

    Notes
    -----
    For whole degrees of freedom the distribution is a finite sum in the angle
    atan(t / √degrees) [1]_, which grows with t: bisection finds the angle to
    the last bit.

    References
    ----------
    .. [1] Abramowitz, Stegun, Handbook of Mathematical Functions, 1964,
       equations 26.7.3 and 26.7.4.

    Examples
    --------
    >>> round(student_quantile(0.975, 1), 3), round(student_quantile(0.975, 30), 3)
    (12.706, 2.042)
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability: {probability} is not between 0 and 1")
    if degrees < 1:
        raise ValueError(f"degrees: {degrees} is less than 1")
    if probability < 0.5:
        return -student_quantile(1 - probability, degrees)
    central = 2 * probability - 1
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _central_probability(middle, degrees) < central:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(middle)


def _central_probability(angle: float, degrees: int) -> float:
    """Return how likely t lies within ± √degrees · tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    # Terms 1, 2/3 cos², 2·4/(3·5) cos⁴ ... for odd degrees, 1, 1/2 cos², 1·3/(2·4) cos⁴ ... else.
    n_terms = (degrees - odd) // 2
    i = np.arange(1, n_terms)
    ratios = (2 * i - 1 + odd) / (2 * i + odd) * cosine**2
    total = 1.0 + float(np.cumprod(ratios).sum()) if n_terms else 0.0
    if odd:
        return 2 / math.pi * (angle + sine * cosine * total)
    return sine * total
