"""Tuning runs: measure all collectives, ranks and sizes, and continue interrupted runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, TypeVar

from collplan.executors.mpi.host.cores import pin_thread
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import first_alone, leave_cores
from collplan.measure.lanes import node_of_ranks
from collplan.measure.timing import everywhere
from collplan.programs.progress_places import find_places
from collplan.select.sweep import price
from collplan.specs import Bcast, PlanSpec
from collplan.specs.errors import CollplanError
from collplan.tables.fingerprint import take_fingerprint
from collplan.tables.sweep import NodePlacement
from collplan.tables.table import TuningTable, save_table
from collplan.tune.candidates import MeasuredCandidates, select
from collplan.tune.crash_log import CrashLog, Watchdog
from collplan.tune.journal import Journal, JournalState, claimed, open_state
from collplan.tune.options import Goal, TuningJob
from collplan.tune.trial import Beside, Verdict, try_candidates

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, float], object]
"""Callback on rank 0 that receives the name of the current point and the part that is done."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a tuning run.

    Parameters
    ----------
    table : TuningTable
        Complete table.
    wrong : tuple of str
        Lines that name candidates whose results were wrong.
    failures : tuple of str
        Lines that name candidates that crashed or did not end.
    n_points : int
        Number of points.
    n_resumed : int
        Number of these points that earlier runs had measured.
    """

    table: TuningTable
    wrong: tuple[str, ...]
    failures: tuple[str, ...]
    n_points: int
    n_resumed: int


def tune(
    comm: Any,
    job: TuningJob,
    output: Path,
    *,
    restart: bool = False,
    on_progress: Progress | None = None,
) -> Tuned:
    """Measure a tuning job and write its table; collective.

    After every point, the unfinished table is written to a journal beside the output, from
    which a run with the same arguments continues. Sweeps are added to an existing table. If
    a call of a candidate does not end, all ranks exit, and the next run skips the candidate.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of all ranks.
    job : TuningJob
        Collectives, numbers of ranks and message sizes to measure.
    output : Path
        Path of the table, YAML or JSON, which is replaced when all points are measured.
    restart : bool
        Whether to discard an unfinished run and replace an existing table.
    on_progress : callable, optional
        Called with the current point and the part of the work that is done.

    Returns
    -------
    Tuned
        The same result on all ranks.

    Raises
    ------
    CollplanError
        If there are too few ranks, or files of earlier runs that this run cannot continue.
    """
    nodes = node_of_ranks(comm)
    places = find_places(comm, nodes, job.cores, job.numa_domains)
    if places.own is not None:
        # Bind before the number of ranks per core is first queried, as that is cached.
        pin_thread(places.own)
    goals = list(job.goals(nodes, places.n_spare))
    with ExitStack() as held:
        on_first(comm, lambda: held.enter_context(claimed(output)))
        journal = Journal(output, job.arguments(NodePlacement.of_nodes(nodes)))
        run = _TuningRun(comm, job, goals, journal, on_progress)
        return run.finish(restart=restart)


def on_first(comm: Any, make: Callable[[], Result]) -> Result:
    """Call a function on rank 0, and return its result or raise its error on all ranks.

    Raises
    ------
    CollplanError
        If the function raises a `CollplanError` on rank 0.
    """
    call = RollCall(comm, None, "tune")
    return everywhere(comm, call.together(lambda: make() if comm.rank == 0 else None))


def over_ranks(
    comm: Any, function: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Apply a function to items on all ranks, each to its share; collective.

    Returns
    -------
    list
        Results in the order of the items, on every rank.

    Raises
    ------
    CollplanError
        On all ranks, if the function raises it on one of them.
    """

    def share() -> list[Result]:
        try:
            return [function(item) for item in items[comm.rank :: comm.size]]
        finally:
            leave_cores(comm)

    own = RollCall(comm, None, "choose candidates").together(share)
    parts = comm.allgather(own)
    return [parts[i % comm.size][i // comm.size] for i in range(len(items))]


def _weight(n_bytes: int) -> float:
    """Return the estimated duration of a point in arbitrary units."""
    return 1 + sqrt(n_bytes) / 256


class _TuningRun:
    """A tuning run on the ranks of a communicator."""

    def __init__(
        self,
        comm: Any,
        job: TuningJob,
        goals: Sequence[Goal],
        journal: Journal,
        on_progress: Progress | None,
    ) -> None:
        self._comm, self._job, self._goals, self._journal = comm, job, goals, journal
        self._crash_log, self._on_progress = CrashLog(journal.output), on_progress
        self._done = 0.0

    def finish(self, *, restart: bool) -> Tuned:
        """Measure all missing points, and write the table."""
        comm, goals, journal, crash_log = self._comm, self._goals, self._journal, self._crash_log
        now = take_fingerprint(comm, self._job.lanes)
        self._state = on_first(
            comm,
            lambda: open_state(
                journal, goals, self._job, now, restart=restart, crash_log=crash_log
            ),
        )
        missing = [size for goal in goals for size in self._state.missing(goal)]
        self._total = sum(map(_weight, missing))
        if missing:
            # Otherwise each rank would compile the simulator to machine code.
            first_alone(comm, lambda: price(PlanSpec(collective=Bcast(count=0))))
            with crash_log.noting_faults():
                try:
                    for goal in goals:
                        self._measure_sweep(goal)
                except CollplanError:  # raised on all ranks, and not caused by a candidate
                    crash_log.remove()
                    raise
        state = on_first(comm, self._conclude)
        n_points = sum(len(goal.sizes) for goal in goals)
        failures = tuple(map(str, state.failures))
        return Tuned(state.table, state.wrong, failures, n_points, n_points - len(missing))

    def _conclude(self) -> JournalState:
        """Write the complete table, then delete the journal and the crash log."""
        save_table(self._state.table, self._journal.output)
        self._journal.remove()
        self._crash_log.remove()
        return self._state

    def _tell(self, goal: Goal, n_bytes: int, part: float) -> None:
        """Report on rank 0 that a part of a point is done."""
        if self._on_progress is not None:
            done = self._done + part * _weight(n_bytes)
            self._on_progress(f"{goal}, {n_bytes} B", done / self._total)

    def _measure_sweep(self, goal: Goal) -> None:
        """Measure the missing points of a sweep."""
        missing = self._state.missing(goal)
        if not missing:
            return
        self._tell(goal, missing[0], 0)
        select_size = partial(self._select, goal)
        selections = over_ranks(self._comm, select_size, missing)
        is_member = self._comm.rank in goal.members
        part = self._comm.Split(0 if is_member else 1, key=self._comm.rank)
        for n_bytes, selection in zip(missing, selections, strict=True):
            self._measure_point(goal, n_bytes, part if is_member else None, selection)
            self._done += _weight(n_bytes)
        part.Free()

    def _select(self, goal: Goal, n_bytes: int) -> MeasuredCandidates:
        """Return the candidates of a point."""
        job = self._job
        spec = self._spec_of(goal, n_bytes)
        return select(spec, job.keep_within, job.at_most, beside_cores=goal.cores)

    def _spec_of(self, goal: Goal, n_bytes: int) -> PlanSpec:
        machine = self._state.table.machine(goal.placement)
        return PlanSpec(machine=machine, collective=goal.sized(n_bytes))

    def _beside(
        self, part: Any, goal: Goal, n_bytes: int, selection: MeasuredCandidates
    ) -> Beside | None:
        """Return the computation during every call, or None for blocking calls; collective."""
        seconds = self._job.computation_s
        if seconds is None:
            return None
        table_of = partial(self._state.table_won_by, goal, n_bytes, selection)
        return Beside(part, seconds, self._job.cores, table_of)

    def _measure_point(
        self, goal: Goal, n_bytes: int, part: Any, selection: MeasuredCandidates
    ) -> None:
        """Measure one point; ranks that are not members of the goal sleep."""
        job, spec = self._job, self._spec_of(goal, n_bytes)
        advance = partial(self._tell, goal, n_bytes)
        advance(0)

        verdict: Verdict | None = None
        reason = None
        if part is not None:
            failed, rules = self._state.failed_of(goal), job.rules
            kept = [one for one in selection.kept if one.name not in failed]
            watchdog = Watchdog(self._crash_log, str(goal), n_bytes, job.give_up_s)
            try:
                beside = self._beside(part, goal, n_bytes, selection)
                verdict = try_candidates(
                    part, spec, kept, rules, advance=advance, watchdog=watchdog, beside=beside
                )
            except CollplanError as error:
                reason = f"{goal}, {n_bytes} bytes: {error}"
        leave_cores(self._comm)

        def note() -> None:
            # Rank 0 is the first rank of the first node, and so a member of every goal.
            if verdict is None:
                raise CollplanError(reason)
            self._state = self._state.after(goal, n_bytes, selection, verdict)
            self._journal.write(self._state)

        on_first(self._comm, note)
