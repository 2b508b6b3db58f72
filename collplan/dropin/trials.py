"""Trials, which measure in a program's own calls whether plans are faster than native MPI.

If no sweep covers the placement of a communicator, the cost model proposes plans. The calls of
the program then run natively and by each plan in turn. The fastest plan is kept if it is faster
than native MPI.
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
from collplan.dropin.arguments import is_rejection
from collplan.dropin.routes import Route
from collplan.measure.statistics import LEAST, summarize
from collplan.tune.table import Decision

FIRST_COST_S: Final = 0.25
"""Expected cost in seconds of the first trial of a communicator.

Later trials expect the cost of the previous trial.
"""
TURNS: Final = 10
"""Number of turns of a trial; in each turn, native MPI and every plan run once.

The first turn is a warm-up.
"""


def greatest(comm: MPI.Intracomm, value: float) -> float:
    """Return the maximum of a value over all ranks; collective."""
    values = np.array([value])
    combine(comm, values, MPI.MAX)
    return float(values[0])


class Waiting:
    """A native method that records the number and time of calls until a trial is decided on.

    Parameters
    ----------
    native : callable
        mpi4py's method.
    n_calls : int
        Number of calls until the first decision.
    ready : mapping
        Routes by the keys of this rank's arguments, see `PlanCache`. After the last of the
        calls, the route of this method is removed, so that the next call decides on a trial.
    keys : set
        Keys of the route of this method.

    Attributes
    ----------
    n_left : int
        Number of calls until the decision.
    seconds : float
        Total time of the calls on this rank in seconds.
    """

    def __init__(
        self, native: Any, n_calls: int, ready: MutableMapping[Any, Route], keys: Set[Any]
    ) -> None:
        self._native, self._ready, self._keys = native, ready, keys
        self._n_calls = self.n_left = n_calls
        self.seconds = 0.0

    def __call__(self, comm: Any, *given: Any) -> Any:
        """Call the native method."""
        begin = perf_counter()
        try:
            return self._native(comm, *given)
        except Exception as error:
            if is_rejection(error):
                self.n_left += 1  # other ranks wait for this call
            raise
        finally:
            self.seconds += perf_counter() - begin
            self.n_left -= 1
            if not self.n_left:
                for key in self._keys:
                    self._ready.pop(key, None)

    def wait_longer(self) -> None:
        """Postpone the decision until the number of calls has doubled."""
        self.n_left = self._n_calls
        self._n_calls *= 2


@dataclass(eq=False, slots=True)
class Contestant:
    """Native MPI or a plan in a trial.

    Parameters
    ----------
    route : Route
        Route whose row counts only the calls of this trial.
    decision : Decision
        Decision for the plan, or for native MPI.
    times : list of float
        Time of each call on the slowest rank in seconds.
    """

    route: Route
    decision: Decision
    times: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        """Median time per call in seconds, without the warm-up if there are other calls."""
        return median(self.times[1:] or self.times)


class Trial:
    """A trial of plans for one signature, with the same state on all ranks.

    Parameters
    ----------
    native : Contestant
        Native MPI.
    plans : list of Contestant
        Plans. If a call of a plan exceeds the budget, the plan is removed.
    budget_s : float
        Limit in seconds of the total time by which calls of plans exceed the median native
        call, without the first call of each plan.

    Attributes
    ----------
    excess_s : float
        Total time in seconds by which calls of plans have exceeded the median native call,
        including the first call of each plan.
    """

    def __init__(self, native: Contestant, plans: list[Contestant], budget_s: float) -> None:
        self.native, self.plans = native, plans
        self.excess_s = 0.0
        self._budget_s = budget_s
        self._turns = self._take_turns()
        self._last: Contestant | None = None
        self._before_s = 0.0

    def next_route(self, comm: MPI.Intracomm) -> Route | None:
        """Return the route of the next call; None if the trial is over; collective.

        All ranks leave this method at about the same time, so that the times of calls do not
        include waiting for late ranks.
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
        """Return the fastest plan that is faster than native MPI; None if there is none.

        A plan is faster than native MPI if the 95 % confidence interval of the median of its
        gains per turn lies above zero.
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
        """Yield the contestants in turns; each turn begins with the next contestant."""
        for turn in range(TURNS):
            contestants = [self.native, *self.plans]
            first = turn % len(contestants)
            for one in contestants[first:] + contestants[:first]:
                # A plan may have been removed during the turn.
                if one is self.native or one in self.plans:
                    yield one
            if not self.plans:
                return

    def _note(self, one: Contestant, spent_s: float) -> None:
        """Record the time of a call, and remove its plan if the call exceeds the budget."""
        one.times.append(spent_s)
        if one is self.native or not self.native.times:
            return
        excess_s = max(0.0, spent_s - median(self.native.times))
        self.excess_s += excess_s
        # The first call may open connections between ranks, a cost that occurs only once.
        self._budget_s -= excess_s if len(one.times) > 1 else 0.0
        if self._budget_s < 0:
            self.plans.remove(one)
