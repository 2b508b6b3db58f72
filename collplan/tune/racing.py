"""Races: candidates are measured until each is out, or its median is known well enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from collplan.measure.statistics import LEAST, is_faster, median_interval
from collplan.tune.sweep import NATIVE_LABEL, Time

Times = npt.NDArray[np.float64]

FIRST_ROUNDS: Final = 3
"""Number of rounds after which candidates that lose by far are out."""
FAR: Final = 1.25
"""Ratio of a candidate's least time to the best one's greatest above which it has lost by far."""
FINALISTS: Final = 4
"""As many go on once all have the least number of rounds: others that are as good."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which a median is known well enough.

    Parameters
    ----------
    tight : float
        When its 95 % interval is within this part of it, to either side.
    least, most : int
        Rounds, at least and at most.
    seconds : float
        Time after which it is enough, if there were `least` rounds.
    """

    tight: float = 0.05
    least: int = 8
    most: int = 100
    seconds: float = 10.0


def time_of(times: Sequence[float] | Times) -> Time:
    """Return the median of measurements and its 95 % interval, shape (n,), in s.

    Examples
    --------
    >>> time = time_of([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    >>> time.low_s, time.median_s, time.high_s
    (1.0, 3.5, 6.0)
    """
    low, high = median_interval(times)
    return Time(median_s=float(np.median(times)), low_s=low, high_s=high, n=len(times))


class Race:
    """Candidates measured in the same rounds, fewer and fewer.

    Native stays to the end, as all are judged by it; it ends when nobody else is left.

    Parameters
    ----------
    names : sequence of str
        The candidates; one is `NATIVE_LABEL`.
    rules : Rules
        When it ends.

    Attributes
    ----------
    active : list of str
        Who is still measured, in order.
    """

    def __init__(self, names: Sequence[str], rules: Rules) -> None:
        assert NATIVE_LABEL in names
        self.active = list(names)
        self._rules = rules
        self._samples: dict[str, list[float]] = {name: [] for name in names}
        self._n_rounds = 0
        self._spent_s = 0.0

    def next_rounds(self) -> int:
        """Return how many rounds to measure next; 0 when it is enough."""
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
        """Take in rounds, shape (len(active), n_rounds), in s, and the time they took in all."""
        for name, own in zip(self.active, times, strict=True):
            self._samples[name] += own.tolist()
        self._n_rounds += times.shape[1]
        self._spent_s += seconds
        ordered = sorted(self.active, key=lambda name: self.time(name).median_s)
        if self._n_rounds < LEAST:
            limit_s = FAR * max(self._samples[ordered[0]])
            good = [name for name in ordered if min(self._samples[name]) <= limit_s]
            # Where calls take so long that time is up already, intervals of all cost too much.
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
        """Return what a candidate took, in the rounds it was in."""
        return time_of(self._samples[name])

    def ranking(self) -> list[str]:
        """Return those still in but native: who beats it first, then by their medians.

        Another one may have the least median and an interval that says nothing.
        """
        native = self.time(NATIVE_LABEL)
        others = [(name, self.time(name)) for name in self.active if name != NATIVE_LABEL]
        others.sort(key=lambda entry: (not is_faster(entry[1], native), entry[1].median_s))
        return [name for name, _ in others]
