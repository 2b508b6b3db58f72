"""Trials of candidates on ranks, on a clock that says what each call is told to cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from mpi4py import MPI

from collplan.measure import run, timing
from collplan.specs import CollplanError, PlanSpec
from collplan.tune import trial
from collplan.tune.candidates import Candidate
from collplan.tune.crash_log import CrashLog, Watchdog
from collplan.tune.racing import StopRules
from collplan.tune.trial import Verdict, try_candidates
from collplan.tune.tuner import on_first, over_ranks
from mpi_plans import refuses

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
Cost = Callable[[int], float]
"""Cost of a candidate's i-th call on this rank, in s."""

SPEC = PlanSpec.model_validate(
    {"machine": {"ranks_per_node": p}, "collective": {"kind": "allreduce", "count": 100}}
)
NATIVE_S = 10e-3
RULES = StopRules(tight=0.05, least=8, most=20, seconds=60.0)


class Clock:
    """Stands still but for what calls cost; ranks agree on it before each."""

    n_meetings = 0

    def __init__(self) -> None:
        self.now_s = 0.0

    def read(self) -> float:
        return self.now_s

    def line_up(self, ranks: Any, crowded: bool) -> None:
        self.now_s = ranks.allreduce(self.now_s, MPI.MAX)
        Clock.n_meetings += 1


class Costing:
    """A call that costs what it is told to."""

    def __init__(self, call: Any, clock: Clock, cost: Cost) -> None:
        self._call, self._clock, self._cost = call, clock, cost
        self._n_calls = 0

    def __call__(self) -> None:
        self._call()
        self._clock.now_s += self._cost(self._n_calls)
        self._n_calls += 1

    def repeat(self, n_calls: int) -> None:
        self._call.repeat(n_calls)
        for i in range(self._n_calls, self._n_calls + n_calls):
            self._clock.now_s += self._cost(i)
        self._n_calls += n_calls

    def __enter__(self) -> Costing:
        self._call.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._call.__exit__(*error)

    def free(self) -> None:
        self._call.free()


class AfterMeeting:
    """The cost of a call that is fast only as the first one after ranks have met."""

    def __init__(self, *costs_s: float) -> None:
        *self._first_s, self._later_s = costs_s
        self._met = 0

    def __call__(self, i: int) -> float:
        is_first, self._met = self._met != Clock.n_meetings, Clock.n_meetings
        return self._first_s[i % len(self._first_s)] if is_first else self._later_s


@contextmanager
def costs(native: Cost, others: dict[str, Cost]) -> Iterator[None]:
    """Set the costs of native and of candidates, by their algorithm."""
    clock = Clock()
    bind_really, native_really = run.bind, run.NativeCollective

    def bind(plan: Any, *arguments: Any) -> Costing:
        return Costing(bind_really(plan, *arguments), clock, others[str(plan.spec.algorithms)])

    def native_collective(*arguments: Any) -> Costing:
        return Costing(native_really(*arguments), clock, native)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "bind", bind)
        patch.setattr(run, "NativeCollective", native_collective)
        patch.setattr(timing, "line_up", clock.line_up)
        for module in (trial, timing):
            patch.setattr(module, "perf_counter", clock.read)
        yield


def candidate(name: str, **changes: Any) -> Candidate:
    fields = SPEC.model_dump() | {"algorithms": name} | changes
    return Candidate(name, "flat", PlanSpec.model_validate(fields))


def tried(
    others: dict[str, Cost],
    *more: Candidate,
    native: Cost | None = None,
    families: Mapping[str, str] = MappingProxyType({}),
) -> Verdict:
    parts: list[float] = []
    with costs(native or (lambda _: NATIVE_S), others | {str(c.name): lambda _: 0.0 for c in more}):
        named = [replace(candidate(name), family=families.get(name, "flat")) for name in others]
        candidates = [*named, *more]
        watchdog = Watchdog(CrashLog(Path("table")), "", 0, 60.0)
        verdict = try_candidates(
            comm, SPEC, candidates, RULES, advance=parts.append, watchdog=watchdog
        )
    assert comm.allgather(verdict) == [verdict] * p
    assert parts == sorted(parts)
    assert parts[-1] == 1
    return verdict


def slowest_rank_counts() -> None:
    """A rank that takes long makes a candidate slow, however quick all others are."""
    verdict = tried(
        {"ring": lambda _: 8e-3 if rank == p - 1 else 1e-3, "rabenseifner": lambda _: 6e-3}
    )
    assert verdict.winner == "rabenseifner"
    assert abs(verdict.times["ring"].median_s - 8e-3) < 1e-9
    assert abs(verdict.times["native"].median_s - NATIVE_S) < 1e-9


def native_stays() -> None:
    """Nobody wins who is not faster beyond noise, and losers are measured no more."""
    verdict = tried({"ring": lambda _: NATIVE_S, "linear": lambda _: 50e-3})
    assert verdict.winner == "native"
    assert verdict.times["linear"].n == 3
    assert verdict.times["native"].n >= RULES.least
    noise = iter([0.8, 1.3] * 1000)
    verdict = tried({"ring": lambda _: NATIVE_S * comm.bcast(next(noise))})
    assert verdict.winner == "native"
    assert verdict.times["ring"].low_s < NATIVE_S < verdict.times["ring"].high_s
    assert verdict.times["ring"].n == RULES.most


def luck_does_not_last() -> None:
    """A candidate that is faster at first has to be so again."""
    n_lucky = 1 + 1 + 9
    verdict = tried({"ring": lambda i: 1e-3 if i < n_lucky else 11e-3})
    assert verdict.winner == "native"
    assert verdict.times["ring"].median_s > NATIVE_S


def second_best_wins_when_the_best_fails() -> None:
    """Of two that cannot be told apart, one was lucky."""
    n_lucky = 1 + 1 + RULES.most
    verdict = tried(
        {
            "ring": lambda i: (1e-3 if i % 2 else 2e-3) if i < n_lucky else 11e-3,
            "linear": lambda i: 1.1e-3 if i % 2 else 2.1e-3,
        }
    )
    assert verdict.winner == "linear"
    assert verdict.times["ring"].median_s > NATIVE_S


def the_best_of_another_family_goes_on() -> None:
    """Those that are alike were lucky together: who comes after them decides it."""
    n_lucky = 1 + 1 + RULES.most

    def lucky(i: int) -> float:
        return (1e-3 if i % 2 else 2e-3) if i < n_lucky else 11e-3

    costs: dict[str, Cost] = {"ring": lucky, "linear": lucky}
    steady: dict[str, Cost] = {"rabenseifner": lambda i: 1.2e-3 if i % 2 else 2.2e-3}
    assert tried(costs | steady).winner == "native"
    verdict = tried(costs | steady, families={"rabenseifner": "full_lane"})
    assert verdict.winner == "rabenseifner"
    # Deciding takes twice as many rounds as there must be.
    assert verdict.times["native"].n >= 2 * RULES.least


def calls_in_a_row_count() -> None:
    """A small call has to be faster than native after itself, too, beyond noise."""
    native_s = 10e-6

    def native(_: int) -> float:
        return native_s

    def linear(i: int) -> float:
        return 6e-6 if i % 2 else 8e-6

    ring = AfterMeeting(5e-6, 7e-6, 30e-6)
    assert tried({"ring": lambda _: 6e-6, "linear": linear}, native=native).winner == "ring"
    assert tried({"ring": ring}, native=native).winner == "native"
    assert tried({"ring": ring, "linear": linear}, native=native).winner == "linear"
    slow, quick = AfterMeeting(5e-6, 7e-6, 11e-6), AfterMeeting(5e-6, 7e-6, 8e-6)
    noisy: dict[str, Cost] = {"linear": lambda i: (slow if Clock.n_meetings % 2 else quick)(i)}
    assert tried(noisy, native=native).winner == "native"


def many_in_groups() -> None:
    """Candidates that do not fit at once are measured in groups; the best of all wins."""
    limit, trial.MOST_AT_ONCE = trial.MOST_AT_ONCE, 2
    names = ["ring", "linear", "rabenseifner", "circulant", "reduce_bcast"]
    try:
        verdict = tried({name: lambda _, k=k: (9 - k) * 1e-3 for k, name in enumerate(names)})
        assert verdict.winner == "reduce_bcast"
        assert set(verdict.times) == {"native", *names}
        verdict = tried({name: lambda _, k=k: (3 + k) * 1e-3 for k, name in enumerate(names)})
        assert verdict.winner == "ring"
    finally:
        trial.MOST_AT_ONCE = limit


def wrong_and_refused() -> None:
    """A candidate of wrong results, or of none, has no times; others are measured all the same."""
    liar = candidate("linear", collective=SPEC.collective.model_dump() | {"op": "max"})
    nobody = candidate("mesh", algorithms={"row": "nonsense"}, decomposition="full_lane")
    verdict = tried({"ring": lambda _: 1e-3}, liar, nobody)
    assert verdict.winner == "ring"
    assert set(verdict.times) == {"native", "ring"}
    assert set(verdict.wrong) == {"linear"}
    assert "rank 0, element 0: got" in verdict.wrong["linear"]
    assert tried({}).winner == "native"


def errors_are_shared() -> None:
    def fail() -> None:
        raise CollplanError("disk: full")

    assert on_first(comm, lambda: rank) == 0
    refuses(CollplanError, "disk: full", lambda: on_first(comm, fail))
    assert over_ranks(comm, abs, [-3, 4, -5, 0, 7]) == [3, 4, 5, 0, 7]
    assert over_ranks(comm, abs, []) == []


slowest_rank_counts()
native_stays()
luck_does_not_last()
second_best_wins_when_the_best_fails()
the_best_of_another_family_goes_on()
calls_in_a_row_count()
many_in_groups()
wrong_and_refused()
errors_are_shared()
comm.Barrier()
if rank == 0:
    print("passed")
