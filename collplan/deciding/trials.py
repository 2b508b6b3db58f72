"""Trials, which find out in a program's own calls whether plans are faster than native MPI.

If no sweep covers the placement of a communicator, the cost model proposes plans. The calls of
the program then run natively and by each plan in turn. The fastest plan is kept if it is faster
than native MPI. This module has the rules: it knows neither calls nor plans, and no MPI. The
drop-in and the helper of the preloaded library apply it to the times that ranks have agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from collplan.measure.statistics import LEAST, summarize

FIRST_COST_S: Final = 0.25
"""Expected cost in seconds of the first trial of a communicator.

Later trials expect the cost of the previous trial.
"""
TURNS: Final = 10
"""Number of turns of a trial; in each turn, native MPI and every plan run once.

The first turn is a warm-up.
"""
NATIVE: Final = 0
"""Number of native MPI among the contestants of a trial. Plans have the numbers from 1 on."""
TRIED: Final = "tried here beside others"
"""Reason of the calls of a trial."""
NO_PREDICTION: Final = "the model predicts none"
"""Reason why there are no plans to try."""


def calls_to_wait(n_calls: int, native_s: float, cost_s: float, share: float) -> int:
    """Return the number of further native calls before ranks meet again; 0 if a trial pays now.

    Parameters
    ----------
    n_calls : int
        Number of native calls so far, at least 1.
    native_s : float
        Total time of these calls on the slowest rank in seconds.
    cost_s : float
        Expected cost of the trial in seconds.
    share : float
        Largest time of trials, as a fraction of the time of native calls.
    """
    return n_calls if cost_s > share * native_s else 0


def why_not_faster(labels: Sequence[str]) -> str:
    """Return the reason of native calls after a trial of plans with these labels."""
    return f"tried here, not faster: {', '.join(labels)}"


class Trial:
    """A trial of plans for one signature, with the same state on all ranks.

    Parameters
    ----------
    n_plans : int
        Number of plans. They are the contestants 1 to `n_plans`, beside `NATIVE`.
    budget_s : float
        Limit in seconds of the total time by which calls of plans exceed the median native
        call, without the first call of each plan.

    Attributes
    ----------
    times : list of list of float
        Time of each call on the slowest rank in seconds, by contestant.
    plans : list of int
        Plans that take part in the next turn. A plan whose call exceeds the budget is removed.
    excess_s : float
        Total time in seconds by which calls of plans have exceeded the median native call,
        including the first call of each plan.
    """

    def __init__(self, n_plans: int, budget_s: float) -> None:
        self.times: list[list[float]] = [[] for _ in range(n_plans + 1)]
        self.plans = list(range(1, n_plans + 1))
        self.excess_s = 0.0
        self._budget_s = budget_s
        self._n_turns = 0
        self._turn: list[int] = []

    def next_turn(self, times: Sequence[float] = ()) -> list[int]:
        """Record the calls of a turn, and return the contestants of the next turn in their order.

        Parameters
        ----------
        times : sequence of float
            Time of each call of the turn on the slowest rank in seconds; empty at the beginning.

        Returns
        -------
        list of int
            Contestants of the next turn; empty if the trial is over. Each turn begins with
            another contestant.

        Raises
        ------
        ValueError
            If the number of times is not that of the contestants of the turn.
        """
        for one, spent_s in zip(self._turn, times, strict=True):
            self._note(one, spent_s)
        turn = [NATIVE, *self.plans] if self.plans and self._n_turns < TURNS else []
        first = self._n_turns % max(1, len(turn))
        self._n_turns += 1
        self._turn = turn[first:] + turn[:first]
        return self._turn

    def replay(self, times: Sequence[float]) -> list[int]:
        """Record the calls of all turns so far, and return the contestants of the next turn.

        Parameters
        ----------
        times : sequence of float
            Time of each call of a new trial on the slowest rank in seconds.

        Raises
        ------
        ValueError
            If the times end within a turn, or go on after the trial.
        """
        turn, left = self.next_turn(), list(times)
        while left:
            n_calls = len(turn) or 1
            turn, left = self.next_turn(left[:n_calls]), left[n_calls:]
        return turn

    def fastest(self) -> int:
        """Return the fastest plan that is faster than native MPI; `NATIVE` if there is none.

        A plan is faster than native MPI if the 95 % confidence interval of the median of its
        gains per turn lies above zero.
        """
        best = NATIVE
        for one in self.plans:
            pairs = zip(self.times[NATIVE][1:], self.times[one][1:], strict=False)
            gains = [native_s - plan_s for native_s, plan_s in pairs]
            is_faster = len(gains) >= LEAST and summarize(gains).low_s > 0
            if is_faster and (best == NATIVE or self.median_s(one) < self.median_s(best)):
                best = one
        return best

    def median_s(self, one: int) -> float:
        """Return a contestant's median time per call in seconds, without its warm-up.

        If there is no other call, it is the time of the warm-up.
        """
        return median(self.times[one][1:] or self.times[one])

    def _note(self, one: int, spent_s: float) -> None:
        """Record the time of a call, and remove its plan if the call exceeds the budget."""
        self.times[one].append(spent_s)
        native_times = self.times[NATIVE]
        if one == NATIVE or not native_times:
            return
        excess_s = max(0.0, spent_s - median(native_times))
        self.excess_s += excess_s
        # The first call may open connections between ranks, a cost that occurs only once.
        self._budget_s -= excess_s if len(self.times[one]) > 1 else 0.0
        if excess_s > 0 and self._budget_s < 0:
            self.plans.remove(one)
