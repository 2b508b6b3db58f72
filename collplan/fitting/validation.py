"""Errors of predictions of points that a model was not fitted to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from collplan.fitting.cluster_model import ClusterModel, CountedPoints, Prediction
from collplan.planner.arrays import Floats, Ints

CLOSE: Final = 1.1
"""Largest ratio of the time of a choice to the best time at which the choice counts as good."""
Split = tuple[Ints, Ints]
"""Rows to fit to, and rows to predict."""


class Scores(NamedTuple):
    """Quality of predictions.

    Parameters
    ----------
    time_error_median, time_error_p90 : float
        Median and 90th percentile of the relative absolute error of times.
    within_10 : float
        Share of cases in which the predicted best algorithm takes at most 10 % longer than the
        measured best one.
    loss_p90 : float
        90th percentile of the time of the predicted best over that of the measured best.
    coverage_90 : float
        Share of measured times in the 90 % interval.
    points, cases : int
        Numbers of points and of cases with at least two named algorithms.
    """

    time_error_median: float
    time_error_p90: float
    within_10: float
    loss_p90: float
    coverage_90: float
    points: int
    cases: int


def score(counted: CountedPoints, predicted: Prediction) -> Scores:
    """Compare predictions with measured times."""
    measured = counted.seconds
    error = np.abs(predicted.seconds / measured - 1)
    losses = losses_of(counted, predicted.seconds)
    inside = (measured >= predicted.low) & (measured <= predicted.high)
    return Scores(
        time_error_median=float(np.median(error)),
        time_error_p90=float(np.quantile(error, 0.9)),
        within_10=float(np.mean(losses <= CLOSE)) if len(losses) else float("nan"),
        loss_p90=float(np.quantile(losses, 0.9)) if len(losses) else float("nan"),
        coverage_90=float(inside.mean()),
        points=len(measured),
        cases=len(losses),
    )


def losses_of(counted: CountedPoints, predicted: Floats) -> Floats:
    """Return the measured time of the predicted best over the best, of each case.

    A case has all named algorithms of a job, collective and size; defaults of libraries, which are
    some of these algorithms, are left out.
    """
    cases: defaultdict[tuple[str | int, ...], list[int]] = defaultdict(list)
    for row, point in enumerate(counted.points):
        if point.is_choice:
            cases[point.case].append(row)
    measured = counted.seconds
    found = []
    for rows in cases.values():
        if len(rows) > 1:
            chosen = rows[int(np.argmin(predicted[rows]))]
            found.append(measured[chosen] / measured[rows].min())
    return np.array(found)


def leave_jobs_out(counted: CountedPoints) -> Iterator[Split]:
    """Yield a split per job of a system."""
    names = counted.features.names
    jobs = np.char.add(np.char.add(names["system"], "/"), names["job"])
    for job in np.unique(jobs):
        yield np.flatnonzero(jobs != job), np.flatnonzero(jobs == job)


def leave_parts_out(counted: CountedPoints, n_parts: int) -> list[Split]:
    """Return a split per part, which has every `n_parts`-th job."""
    jobs = [held for _, held in leave_jobs_out(counted)]
    everything = np.arange(len(counted.points))
    found = []
    for first in range(min(n_parts, len(jobs))):
        held = np.concatenate(jobs[first::n_parts])
        found.append((np.setdiff1d(everything, held), held))
    return found


def predict_splits(
    counted: CountedPoints,
    splits: Iterator[Split] | Sequence[Split],
    make: Callable[[CountedPoints], ClusterModel] = ClusterModel,
) -> tuple[CountedPoints, Prediction]:
    """Fit to the first rows of each split, and predict the others.

    Returns
    -------
    CountedPoints, Prediction
        All predicted points, and their predictions.
    """
    rows, parts = [], []
    for fitted, held in splits:
        parts.append(make(counted.take(fitted)).predict(counted.take(held)))
        rows.append(held)
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return counted.take(np.concatenate(rows)), Prediction(*columns)
