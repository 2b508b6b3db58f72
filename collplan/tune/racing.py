"""Races: measure candidates in rounds until each has lost or its median is known precisely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from collplan.measure.statistics import LEAST, is_faster, median_interval
from collplan.tables.sweep import NATIVE_LABEL, Time

Times = npt.NDArray[np.float64]

FIRST_ROUNDS: Final = 3
"""Number of rounds after which candidates that are far slower than the best are dropped."""
FAR: Final = 1.25
"""Largest ratio of a candidate's shortest time to the longest time of the best candidate.

Candidates with larger ratios are dropped after the first rounds.
"""
FINALISTS: Final = 4
"""Largest number of candidates that continue after the least number of rounds."""


@dataclass(frozen=True, slots=True)
class StopRules:
    """Rules that end a series of measurements.

    Parameters
    ----------
    tight : float
        Half width of the 95 % confidence interval relative to the median. Measurements end
        when the intervals of all candidates are this narrow.
    least, most : int
        Least and greatest number of rounds.
    seconds : float
        Time limit in seconds, which takes effect after `least` rounds.
    """

    tight: float = 0.05
    least: int = 8
    most: int = 100
    seconds: float = 10.0


def time_of(times: Sequence[float] | Times) -> Time:
    """Return the median of measured times and its 95 % confidence interval.

    Parameters
    ----------
    times : array_like, shape (n,)
        Times in seconds.

    Examples
    --------
    >>> time = time_of([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    >>> time.low_s, time.median_s, time.high_s
    (1.0, 3.5, 6.0)
    """
    low, high = median_interval(times)
    return Time(median_s=float(np.median(times)), low_s=low, high_s=high, n=len(times))


class Race:
    """Candidates that are measured in the same rounds, from which slow ones are dropped.

    The native collective is never dropped, as all candidates are compared with it. The race
    ends when no other candidate is left.

    Parameters
    ----------
    names : sequence of str
        Names of the candidates; one of them is `NATIVE_LABEL`.
    rules : StopRules
        Rules that end the race.

    Attributes
    ----------
    active : list of str
        Candidates that are still measured, in the order of `names`.
    """

    def __init__(self, names: Sequence[str], rules: StopRules) -> None:
        assert NATIVE_LABEL in names
        self.active = list(names)
        self._rules = rules
        self._samples: dict[str, list[float]] = {name: [] for name in names}
        self._n_rounds = 0
        self._spent_s = 0.0

    def next_rounds(self) -> int:
        """Return the number of rounds to measure next; 0 when the race is over."""
        n, rules = self._n_rounds, self._rules
        if n < LEAST:
            return FIRST_ROUNDS
        if n >= rules.least and (n >= rules.most or self._spent_s >= rules.seconds):
            return 0
        is_decided = self.active == [NATIVE_LABEL]
        if n >= rules.least and (is_decided or all(map(self._is_tight, self.active))):
            return 0
        return min(max(FIRST_ROUNDS, n // 2), max(rules.most, rules.least) - n)

    def add(self, times: Times, seconds: float) -> None:
        """Add measured rounds, and drop the candidates that have lost.

        Parameters
        ----------
        times : ndarray of float64, shape (len(active), n_rounds)
            Times of the calls in seconds.
        seconds : float
            Time that all rounds took together.
        """
        for name, row in zip(self.active, times, strict=True):
            self._samples[name] += row.tolist()
        self._n_rounds += times.shape[1]
        self._spent_s += seconds
        ordered = sorted(self.active, key=lambda name: self.time(name).median_s)
        if self._n_rounds < LEAST:
            limit_s = FAR * max(self._samples[ordered[0]])
            good = [name for name in ordered if min(self._samples[name]) <= limit_s]
            # If time is up already, measuring the intervals of all candidates takes too long.
            is_final = self._spent_s >= self._rules.seconds
        else:
            limit_s = min(self.time(ordered[0]).high_s, self.time(NATIVE_LABEL).high_s)
            good = [name for name in ordered if self.time(name).low_s <= limit_s]
            is_final = self._n_rounds >= self._rules.least
        others = [name for name in good if name != NATIVE_LABEL]
        kept = {NATIVE_LABEL, *others[: FINALISTS if is_final else None]}
        self.active = [name for name in self.active if name in kept]

    def _is_tight(self, name: str) -> bool:
        time, tight = self.time(name), self._rules.tight
        return bool(time.high_s - time.low_s <= 2 * tight * time.median_s)

    def time(self, name: str) -> Time:
        """Return the time of a candidate over the rounds in which it was measured."""
        return time_of(self._samples[name])

    def ranking(self) -> list[str]:
        """Return the active candidates without native, the best first.

        Candidates whose intervals lie below that of native come first. Within both groups,
        candidates are in ascending order of their medians. Medians alone are not sufficient, as
        the smallest median may have a wide interval.
        """
        native = self.time(NATIVE_LABEL)
        others = [(name, self.time(name)) for name in self.active if name != NATIVE_LABEL]
        others.sort(key=lambda entry: (not is_faster(entry[1], native), entry[1].median_s))
        return [name for name, _ in others]
