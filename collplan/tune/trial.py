"""Trials: check candidates, measure them in turns with the native call, and confirm the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from time import perf_counter
from typing import Any, Final

from collplan.deciding.options import CallOptions
from collplan.dropin.family import Family, load_library
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.executors.mpi.together import first_alone, own_communicator
from collplan.measure.native import NativeCollective
from collplan.measure.overlap.overlapped import (
    Computation,
    Overlapped,
    overlapped_native,
    require_multiple_threads,
)
from collplan.measure.run import Case, case_for_spec, find_truth, try_to_bind
from collplan.measure.statistics import is_faster
from collplan.measure.timing import Call, CallObserver, time_in_turns
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import PlanSpec
from collplan.tables.sweep import NATIVE_LABEL, Time
from collplan.tables.table import TuningTable
from collplan.tune.candidates import Candidate
from collplan.tune.crash_log import Watchdog
from collplan.tune.racing import Race, StopRules, Times

_FIRST_CALLS: Final = 2
"""Number of first calls, in which plans are made. All later calls must run by the plan."""


class Beside:
    """A computation on this rank, and candidates that run at the same time.

    A candidate is measured as the non-blocking call of MPI that follows a table in which the
    candidate has won, so that the same code runs as in programs that use the table. Construction
    is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    seconds : float
        Duration of the computation of each rank in s, if the rank has a core of its own.
    cores : sequence of int or None
        Processor of each core of a node, as in `CallOptions`.
    table_of : callable
        Function from the name of a candidate to a table in which it is the only winner.

    Raises
    ------
    CollplanError
        On all ranks, if MPI was not initialized with ``MPI_THREAD_MULTIPLE``, or if calls of MPI
        cannot follow a table.
    """

    def __init__(
        self,
        comm: Any,
        seconds: float,
        cores: Sequence[int] | None,
        table_of: Callable[[str], TuningTable],
    ) -> None:
        require_multiple_threads()
        self._compute = first_alone(comm, lambda: Computation(seconds))
        load_library(comm)
        places = None if cores is None else tuple(cores)
        self._options = CallOptions(native_calls=0, trials=0.0, cores=places)
        self._table_of = table_of

    def natively(self, native: NativeCollective) -> Overlapped:
        """Return a call that overlaps MPI's own collective with the computation."""
        return overlapped_native(native, self._compute)

    def follow(self, name: str, case: Case) -> Overlapped:
        """Return a call that runs a candidate and the computation at the same time; collective.

        Parameters
        ----------
        name : str
            Name of the candidate.
        case : Case
            Collective and buffers.

        Raises
        ------
        UnsupportedPlanError
            On all ranks, if the call does not run by a plan on every rank.
        """
        comm = own_communicator(case.comm)
        call = NativeCollective(case.collective, comm, case.sendbuf, case.recvbuf)
        family = Family(comm, self._table_of(name), self._options, ())

        def free() -> None:
            call.__exit__()
            comm.Free()
            family.close()

        run = replace(overlapped_native(call, self._compute), free=free)
        for _ in range(_FIRST_CALLS):
            run.alone()
            family.prepare(comm)
        before = _n_planned(family)
        run.alone()
        if not all(case.comm.allgather(_n_planned(family) > before)):
            whys = [row.why for row in family.statistics().rows if not row.planned]
            free()
            raise UnsupportedPlanError(f"non-blocking calls stay native: {'; '.join(whys)}")
        return run


def _n_planned(family: Family) -> int:
    """Return the number of this rank's calls that ran by plans."""
    return sum(row.calls for row in family.statistics().rows if row.planned)


MOST_AT_ONCE: Final = 8
"""Largest number of candidates that are bound and measured in the same rounds."""
SCRATCH_BYTES: Final = 1 << 27
"""Memory per rank for the scratch buffers of candidates that are bound together, in bytes."""

CONFIRMED: Final = 2
"""Number of the best candidates that stay bound for the final race.

The best candidate of the other families stays, too.
"""
DECIDING: Final = 2
"""Ratio of the least number of rounds in the final race to that in earlier races.

More rounds tolerate more outliers before an interval reaches that of native.
"""

SMALL_S: Final = 1e-3
"""Native time in seconds below which candidates must also win if calls follow one another."""
IN_A_ROW_S: Final = 1e-3
"""Duration in seconds of native calls that are timed together."""
MOST_IN_A_ROW: Final = 10_000
"""Largest number of calls that are timed together."""

PATIENCE: Final = 20
"""Time that a call of a candidate may take beyond the time limit, in native calls."""

Advance = Callable[[float], object]
"""Callback that receives the part of the work that is done, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The measurements of one collective at one message size.

    Parameters
    ----------
    times : dict of str to Time
        Times by candidate, native included.
    winner : str
        Native, unless the interval of another candidate lies below that of native, or results
        must be reproducible between runs.
    wrong : dict of str to str
        First wrong element by candidate, for candidates with wrong results.
    ranks_per_core : float
        Number of ranks that shared a core; at most 1 if each rank had its own.
    """

    times: dict[str, Time]
    winner: str
    wrong: dict[str, str] = field(default_factory=dict)
    ranks_per_core: float = 1.0


def try_candidates(
    comm: Any,
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    rules: StopRules,
    *,
    advance: Advance,
    watchdog: Watchdog,
    beside: Beside | None = None,
) -> Verdict:
    """Find the fastest candidate for a spec's collective; collective.

    Candidates are measured in groups, in turns with the native call and the best candidates
    of earlier groups. The time of a call is that of its slowest rank. The best candidates
    must win again in a final race.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator with as many ranks as the spec's machine.
    spec : PlanSpec
        Spec whose collective has the count to measure.
    candidates : sequence of Candidate
        Candidates, the most promising first.
    rules : StopRules
        Rules that end the races.
    advance : callable
        Called with the part of the work that is done.
    watchdog : Watchdog
        Watchdog that ends the run if a call of a candidate does not end.
    beside : Beside, optional
        Computation during each call, which is then non-blocking.

    Returns
    -------
    Verdict
        The same on every rank.

    Raises
    ------
    CollplanError
        If buffers of this size cannot be allocated.
    """
    case = case_for_spec(spec, comm)
    with case.natively() as native, watchdog.watching():
        trial = _Trial(case, native, rules, watchdog, beside)
        left = list(candidates)
        while left:
            trial.fill(left)
            advance(1 - (len(left) + 1) / (len(candidates) + 1))
            trial.measure_round()
        trial.confirm()
        trial.free()
    advance(1.0)
    return trial.verdict


class _Trial:
    """Measurement of the native call and of the candidates that are currently bound."""

    def __init__(
        self,
        case: Case,
        native: NativeCollective,
        rules: StopRules,
        watchdog: Watchdog,
        beside: Beside | None,
    ) -> None:
        self._case, self._comm, self._rules = case, case.comm, rules
        self._watchdog = watchdog
        n_sharing = ranks_per_core(case.comm)
        _, self._truth = find_truth(case, native)
        self._beside = beside
        self._native: Call = native if beside is None else beside.natively(native)
        self._repeat_native = native.repeat
        self._bound: dict[str, BoundPlan | Overlapped] = {}
        self._families: dict[str, str] = {}
        self._turn = 0
        self.verdict = Verdict({}, NATIVE_LABEL, ranks_per_core=n_sharing)
        begin = perf_counter()
        self._native()
        watchdog.limit_s = max(watchdog.limit_s, PATIENCE * (perf_counter() - begin))

    def fill(self, left: list[Candidate]) -> None:
        """Remove candidates from the front of a list, and bind and check them.

        The method stops at the limits of candidates and of scratch memory.

        Candidates that cannot be compiled or bound, or have wrong results, are dropped.
        """
        comm, room, n_before = self._comm, SCRATCH_BYTES, len(self._bound)
        while left and len(self._bound) < n_before + MOST_AT_ONCE and room > 0:
            candidate = left.pop(0)
            self._watchdog.announce(candidate.name)
            comm.Barrier()
            # Binding is not watched, as the first one compiles the engine.
            made = try_to_bind(candidate.spec, self._case, partial(self._bind, candidate))
            if isinstance(made, str):
                continue
            plan, bound = made
            room -= _scratch_bytes(plan, comm)
            self._case.fill()
            self._watchdog.begin(candidate.name)
            bound()
            wrong = self._case.compare(self._truth)
            self._watchdog.end()
            if wrong is None:
                self._bound[candidate.name] = bound
                self._families[candidate.name] = candidate.family
            else:
                self.verdict.wrong[candidate.name] = str(wrong)
                bound.free()

    def _bind(self, candidate: Candidate, plan: Plan) -> BoundPlan | Overlapped:
        """Return a callable plan; collective."""
        if self._beside is None:
            return self._case.bind(plan)
        return self._beside.follow(candidate.name, self._case)

    def measure_round(self) -> None:
        """Measure native and all bound candidates, and free all but the best of them."""
        race = self._run([NATIVE_LABEL, *self._bound])
        best = self._finalists(race.ranking())
        for name in [name for name in self._bound if name not in best]:
            self._bound.pop(name).free()

    def _finalists(self, ranking: Sequence[str]) -> list[str]:
        """Return the best candidates of a ranking, and the best one of the other families.

        Candidates of one family may have been faster by the same accident.
        """
        best = list(ranking[:CONFIRMED])
        families = {self._families[name] for name in best}
        others = [name for name in ranking if self._families[name] not in families]
        return [*best, *others[:1]]

    def confirm(self) -> None:
        """Measure the best candidates and native again, and choose the winner.

        The second measurement is needed because one of many candidates may win by accident. If
        results must be reproducible between runs, native cannot win.
        """
        times = self.verdict.times
        if not times:
            self._run([NATIVE_LABEL])
        native_s = times[NATIVE_LABEL].median_s
        faster = [name for name in self._bound if times[name].median_s < native_s]
        if native_s < SMALL_S and self._beside is None:
            faster = self._faster_in_a_row(faster)
        winner = NATIVE_LABEL
        if faster:
            least = min(DECIDING * self._rules.least, max(self._rules.most, self._rules.least))
            rules = replace(self._rules, least=least)
            ranking = self._run([NATIVE_LABEL, *faster], rules, is_warm=True).ranking()
            faster = [name for name in ranking if is_faster(times[name], times[NATIVE_LABEL])]
            winner = (faster or [NATIVE_LABEL])[0]
        is_native_free = self._case.collective.level in (None, "ranks")
        if winner == NATIVE_LABEL and self._bound and not is_native_free:
            winner = min(self._bound, key=lambda name: times[name].median_s)
        self.verdict = replace(self.verdict, winner=winner)

    def _faster_in_a_row(self, names: list[str]) -> list[str]:
        """Return the candidates that are also faster than native if calls follow one another.

        Ranks that have just left a barrier find other conditions than ranks in a loop of calls.
        Compiled code makes these calls, as the time that Python takes for a call would change the
        order in which ranks wait for each other.
        """
        usual_s = self.verdict.times[NATIVE_LABEL].median_s
        n_calls = ceil(IN_A_ROW_S / max(usual_s, IN_A_ROW_S / MOST_IN_A_ROW))
        race = Race([NATIVE_LABEL, *names], self._rules)
        for name in race.active:
            self._repeat(name, 0)  # loads or compiles what makes the calls
        while n_rounds := race.next_rounds():
            race.add(*self._time(race.active, n_rounds, n_calls))
        native = race.time(NATIVE_LABEL)
        return [name for name in race.ranking() if is_faster(race.time(name), native)]

    def _repeat(self, name: str, n_calls: int) -> None:
        """Make blocking calls of native or of a bound candidate in compiled code."""
        bound = self._bound.get(name)
        assert not isinstance(bound, Overlapped)
        (self._repeat_native if bound is None else bound.repeat)(n_calls)

    def free(self) -> None:
        """Free all bound plans; collective."""
        for bound in self._bound.values():
            bound.free()

    def _run(
        self, names: list[str], rules: StopRules | None = None, *, is_warm: bool = False
    ) -> Race:
        """Run a race to its end, and record all times in the verdict."""
        race = Race(names, rules or self._rules)
        if not is_warm:
            self._time(names, 1)
        while n_rounds := race.next_rounds():
            race.add(*self._time(race.active, n_rounds))
        self.verdict.times.update({name: race.time(name) for name in names})
        return race

    def _time(self, names: Sequence[str], n_rounds: int, n_calls: int = 1) -> tuple[Times, float]:
        """Measure rounds of calls; each round begins with another candidate than the last round.

        Returns
        -------
        times : ndarray of float64, shape (len(names), n_rounds)
            Times per call of the slowest rank in seconds.
        spent_s : float
            Duration of all rounds in seconds.
        """
        calls = [self._native if name == NATIVE_LABEL else self._bound[name] for name in names]
        if n_calls > 1:
            calls = [partial(self._repeat, name, n_calls) for name in names]
        begin = perf_counter()
        times = time_in_turns(
            self._comm,
            calls,
            n_rounds,
            prepare=self._case.refill,
            watch=_Guarded(self._watchdog, names),
            warm_ups=0,
            first=self._turn + 1,
        )
        self._turn += n_rounds
        return times / n_calls, float(self._comm.bcast(perf_counter() - begin))


class _Guarded(CallObserver):
    """Report the calls of candidates to a watchdog; native calls are not watched."""

    def __init__(self, watchdog: Watchdog, names: Sequence[str]) -> None:
        self._watchdog = watchdog
        self._names = [None if name == NATIVE_LABEL else name for name in names]

    def announce(self, which: int) -> None:
        self._watchdog.announce(self._names[which])

    def begin(self, which: int) -> None:
        if (name := self._names[which]) is not None:
            self._watchdog.begin(name)

    def end(self) -> None:
        self._watchdog.end()


def _scratch_bytes(plan: Plan, comm: Any) -> int:
    """Return the largest scratch memory of any rank in bytes; collective."""
    n_elements = int(plan.buffer_sizes[comm.rank, Buffer.SCRATCH])
    n_elements += int(plan.shared_sizes.max(initial=0))
    return int(max(comm.allgather(n_elements * plan.itemsize)))
