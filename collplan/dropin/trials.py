"""Trials: calls in turns that find out in place whether plans are faster than native MPI.

Where no sweep speaks for a communicator, the cost model proposes plans. The program's own calls
then run natively and by each plan in turns, and a plan stays that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Set
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.agreement import combine
from collplan.dropin.routes import Route
from collplan.measure.statistics import LEAST, summarize
from collplan.tune.table import Decision

FIRST_COST_S: Final = 0.25
"""Time that the first trial of a communicator is expected to take; later ones, as the last did."""
TURNS: Final = 10
"""Turns of a trial, in each of which native MPI and every plan run once; the first warms up."""


def greatest(comm: MPI.Intracomm, value: float) -> float:
    """Return the greatest of all ranks' values; collective."""
    values = np.array([value])
    combine(comm, values, MPI.MAX)
    return float(values[0])


class Waiting:
    """The native method of calls that no sweep speaks for, until ranks meet about a trial.

    Parameters
    ----------
    native : callable
        mpi4py's method.
    n_calls : int
        Calls until the first meeting.
    ready : mapping
        Where calls are found by their looks, until ranks meet.
    keys : set
        The looks of these calls.
    """

    def __init__(
        self, native: Any, n_calls: int, ready: MutableMapping[Any, Route], keys: Set[Any]
    ) -> None:
        self._native, self._ready, self._keys = native, ready, keys
        self._n_calls = self.n_left = n_calls
        self.seconds = 0.0

    def __call__(self, comm: Any, *given: Any) -> Any:
        """Run natively."""
        begin = perf_counter()
        try:
            return self._native(comm, *given)
        finally:
            self.seconds += perf_counter() - begin
            self.n_left -= 1
            if not self.n_left:
                for key in self._keys:
                    self._ready.pop(key, None)

    def go_on(self) -> None:
        """Wait for as many calls again as there were."""
        self.n_left = self._n_calls
        self._n_calls *= 2


@dataclass(eq=False, slots=True)
class Contestant:
    """One of the ways that a trial compares: native MPI or a plan.

    Parameters
    ----------
    route : Route
        Its row is of this trial alone.
    decision : Decision
    times : list of float
        Of its calls on the slowest rank, in s.
    """

    route: Route
    decision: Decision
    times: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        """Return the median time of a call, the first aside if there are others."""
        return median(self.times[1:] or self.times)


class Trial:
    """A trial of plans for one signature; the same on all ranks.

    Parameters
    ----------
    native : Contestant
    plans : list of Contestant
    budget_s : float
        How much longer than native calls those of the plans may take, in all, after the first
        turn.
    """

    def __init__(self, native: Contestant, plans: list[Contestant], budget_s: float) -> None:
        self.native, self.plans = native, plans
        self.excess_s = 0.0
        self._budget_s = budget_s
        self._turns = self._take_turns()
        self._last: Contestant | None = None
        self._before_s = 0.0

    def next_route(self, comm: MPI.Intracomm) -> Route | None:
        """Return what the next call runs, None if the trial is over; collective.

        Ranks leave together, so that the call's time is its own on all of them.
        """
        last = self._last
        spent_s = 0.0 if last is None else last.route.row.seconds - self._before_s
        spent_s = greatest(comm, spent_s)
        if last is not None:
            self._note(last, spent_s)
        self._last = next(self._turns, None)
        if self._last is None:
            return None
        self._before_s = self._last.route.row.seconds
        return self._last.route

    def fastest(self) -> Contestant | None:
        """Return the fastest plan of those that are faster than native; None without any.

        The 95 % interval of the median gain of all turns has to be above zero.
        """
        best: Contestant | None = None
        for one in self.plans:
            pairs = zip(self.native.times[1:], one.times[1:], strict=False)
            gains = [native_s - plan_s for native_s, plan_s in pairs]
            is_faster = len(gains) >= LEAST and summarize(gains).low_s > 0
            if is_faster and (best is None or one.median_s < best.median_s):
                best = one
        return best

    def _take_turns(self) -> Iterator[Contestant]:
        for turn in range(TURNS):
            there = [self.native, *self.plans]
            first = turn % len(there)
            for one in there[first:] + there[:first]:
                # One that was dropped meanwhile is not there any more.
                if one is self.native or one in self.plans:
                    yield one
            if not self.plans:
                return

    def _note(self, one: Contestant, spent_s: float) -> None:
        one.times.append(spent_s)
        if one is self.native or not self.native.times:
            return
        excess_s = max(0.0, spent_s - median(self.native.times))
        self.excess_s += excess_s
        # The first call may have to connect ranks, which no later one does.
        self._budget_s -= excess_s if len(one.times) > 1 else 0.0
        if self._budget_s < 0:
            self.plans.remove(one)
