"""Summaries of measurements against published tables, integration and simulation."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from collplan.measure.statistics import Summary, is_slower, student_quantile, summarize

# Two-sided 95 % and 99 %: any printed table of Student's t.
TABLE = {
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    5: (2.571, 4.032),
    10: (2.228, 3.169),
    19: (2.093, 2.861),
    29: (2.045, 2.756),
    30: (2.042, 2.750),
    120: (1.980, 2.617),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_are_the_printed_ones(degrees: int) -> None:
    found = tuple(round(student_quantile(p, degrees), 3) for p in (0.975, 0.995))
    assert found == TABLE[degrees]


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 8, 79, 500])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9, 0.975])
def test_quantiles_invert_the_integral_of_the_density(degrees: int, probability: float) -> None:
    end = student_quantile(probability, degrees)
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(log_scale) / math.sqrt(degrees * math.pi)
    x, weight = np.polynomial.legendre.leggauss(200)
    t = end / 2 * (x + 1)
    density = scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
    assert 0.5 + end / 2 * float(weight @ density) == pytest.approx(probability, abs=1e-10)


def test_quantiles_approach_the_normal_ones() -> None:
    errors = [student_quantile(0.975, n) - NormalDist().inv_cdf(0.975) for n in (10, 10**3, 10**5)]
    assert errors[0] > errors[1] > errors[2] > 0
    assert errors[2] < 3e-5


def test_quantiles_refuse_what_has_none() -> None:
    with pytest.raises(ValueError, match="probability: 1 is not between 0 and 1"):
        student_quantile(1, 3)
    with pytest.raises(ValueError, match="degrees: 0 is less than 1"):
        student_quantile(0.9, 0)


def test_the_interval_covers_the_true_mean_95_times_of_100() -> None:
    draws = np.random.default_rng(7).normal(3.0, 2.0, size=(4000, 4))
    intervals = np.array([summarize(row).ci95_s for row in draws])
    covered = np.mean((intervals[:, 0] < 3.0) & (intervals[:, 1] > 3.0))
    # With the normal quantile instead of Student's it would be 0.85.
    assert covered == pytest.approx(0.95, abs=0.012)


def test_a_summary_says_all_of_it() -> None:
    summary = summarize([4.0, 2.0, 2.0, 3.0])
    half = 3.182446305 * math.sqrt(11 / 12) / 2
    assert summary.n == 4
    assert (summary.median_s, summary.mean_s) == (2.5, 2.75)
    assert (summary.min_s, summary.max_s) == (2.0, 4.0)
    assert summary.ci95_s == pytest.approx((2.75 - half, 2.75 + half))
    assert set(summary.to_json()) == {"median_s", "mean_s", "ci95_s", "min_s"}


def test_equal_times_have_an_interval_without_width() -> None:
    assert summarize([0.5, 0.5, 0.5]).ci95_s == (0.5, 0.5)


@pytest.mark.parametrize("times", [[], [1.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_too_little_to_summarize(times: list[float]) -> None:
    with pytest.raises(ValueError, match="make 2 or more"):
        summarize(times)


def summary(mean: float, half: float, median: float) -> Summary:
    return Summary(9, median, mean, (mean - half, mean + half), mean - half, mean + half)


def test_slower_beyond_noise_needs_apart_intervals_and_medians() -> None:
    assert is_slower(summary(2.0, 0.4, 2.0), summary(1.0, 0.5, 1.0))
    assert not is_slower(summary(2.0, 0.6, 2.0), summary(1.0, 0.5, 1.0))
    assert not is_slower(summary(2.0, 0.4, 0.9), summary(1.0, 0.5, 1.0))
    assert not is_slower(summary(1.0, 0.5, 1.0), summary(2.0, 0.4, 2.0))
