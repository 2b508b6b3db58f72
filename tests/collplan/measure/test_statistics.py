"""Summaries of measurements, and which of two is faster, against simulation and counting."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from collplan.measure.statistics import LEAST, Summary, is_faster, median_interval, summarize


@pytest.mark.quick
@pytest.mark.parametrize(
    ("n", "beyond"), [(2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (100, 39)]
)
def test_intervals_leave_out_what_any_printed_table_does(n: int, beyond: int) -> None:
    assert median_interval(np.arange(n, dtype=np.float64)) == (beyond, n - 1 - beyond)


def test_the_least_number_is_where_all_measurements_hold_the_median() -> None:
    assert 2 / 2**LEAST <= 0.05 < 2 / 2 ** (LEAST - 1)


@pytest.mark.quick
@pytest.mark.parametrize("n", [6, 9, 30])
def test_the_interval_covers_the_true_median_95_times_of_100(n: int) -> None:
    draws = np.random.default_rng(7).normal(3.0, 2.0, size=(4000, n))
    intervals = np.array([median_interval(row) for row in draws])
    covered = np.mean((intervals[:, 0] < 3.0) & (intervals[:, 1] > 3.0))
    k = int(median_interval(np.arange(n, dtype=np.float64))[0])
    exact = 1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n
    assert exact >= 0.95
    assert covered == pytest.approx(exact, abs=0.012)


def test_outliers_do_not_move_the_interval() -> None:
    times = [1.0, 1.1, 1.2] * 5
    assert median_interval([*times, 100.0]) == median_interval([*times, 1.2])


def test_a_summary_says_all_of_it() -> None:
    summary = summarize([4.0, 2.0, 2.0, 3.0])
    assert summary.n == 4
    assert (summary.median_s, summary.mean_s) == (2.5, 2.75)
    assert (summary.min_s, summary.max_s) == (2.0, 4.0)
    assert (summary.low_s, summary.high_s) == (2.0, 4.0)
    assert summary.to_json()["ci95_s"] == (2.0, 4.0)
    assert set(summary.to_json()) == {"median_s", "mean_s", "ci95_s", "min_s"}


def test_equal_times_have_an_interval_without_width() -> None:
    assert median_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)


@pytest.mark.quick
@pytest.mark.parametrize("times", [[], [1.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_too_little_to_summarize(times: list[float]) -> None:
    with pytest.raises(ValueError, match="make 2 or more"):
        summarize(times)


def summary(low: float, high: float, n: int = 9) -> Summary:
    middle = (low + high) / 2
    return Summary(n, middle, middle, low, high, low, high)


def test_faster_beyond_noise_needs_apart_intervals() -> None:
    assert is_faster(summary(0.5, 1.5), summary(1.6, 2.4))
    assert not is_faster(summary(0.5, 1.5), summary(1.4, 2.6))
    assert not is_faster(summary(0.5, 1.5), summary(1.5, 2.6))
    assert not is_faster(summary(1.6, 2.4), summary(0.5, 1.5))


def test_few_measurements_say_nothing() -> None:
    one, other = (0.5, 1.5), (1.6, 2.4)
    assert is_faster(summary(*one, LEAST), summary(*other, LEAST))
    assert not is_faster(summary(*one, LEAST - 1), summary(*other))
    assert not is_faster(summary(*one), summary(*other, LEAST - 1))
