"""Routes of calls before and in a trial of plans; see `collplan.dropin.trials`."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence, Set
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.dropin.agreement import combine
from collplan.dropin.arguments import is_rejection
from collplan.dropin.routes import Route
from collplan.dropin.trials import Trial, calls_to_wait


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

    def pays(self, native_s: float, cost_s: float, share: float) -> bool:
        """Return whether a trial pays; otherwise, postpone the decision.

        The parameters are those of `calls_to_wait`, the same on all ranks.
        """
        self.n_left = calls_to_wait(self._n_calls, native_s, cost_s, share)
        self._n_calls += self.n_left
        return not self.n_left


class TriedRoutes:
    """Routes that take turns in a trial.

    Parameters
    ----------
    native : Route
        Native route. The rows of all routes count only the calls of this trial.
    plans : sequence of Route
        Routes with plans.
    budget_s : float
        Limit of the time that slow plans may cost in seconds, see `Trial`.

    Attributes
    ----------
    routes : list of Route
        Routes by contestant of the trial.
    trial : Trial
        Trial with the times of all complete turns.
    """

    def __init__(self, native: Route, plans: Sequence[Route], budget_s: float) -> None:
        self.routes = [native, *plans]
        self.trial = Trial(len(plans), budget_s)
        self._left: list[Route] = []
        self._times: list[float] = []
        self._last: Route | None = None
        self._before_s = 0.0
        self._is_repeated = False

    def next_route(self, comm: MPI.Intracomm) -> Route | None:
        """Return the route of the next call; None if the trial is over; collective.

        All ranks leave this method at about the same time, so that the times of calls do not
        include waiting for late ranks.
        """
        last = self._last
        if self._is_repeated:
            self._is_repeated = False
            return last
        spent_s = greatest(comm, 0.0 if last is None else last.row.seconds - self._before_s)
        if last is not None:
            self._times.append(spent_s)
        if not self._left:
            self._left = [self.routes[one] for one in self.trial.next_turn(self._times)]
            self._times = []
        if not self._left:
            return None
        self._last = self._left.pop(0)
        self._before_s = self._last.row.seconds
        return self._last

    def repeat(self) -> None:
        """Let the next call take the route of the last one without a meeting of the ranks.

        MPI has rejected that call on this rank alone, and other ranks wait for it.
        """
        self._is_repeated = True
