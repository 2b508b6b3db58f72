"""What is measured so far: an unfinished table, point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collplan.specs.errors import CollplanError
from collplan.tune.crash_log import Attempt, Attempts, Failure
from collplan.tune.journal import AGAIN, Journal, read_complete
from collplan.tune.options import Goal, Request
from collplan.tune.prediction import Selection
from collplan.tune.sweep import NATIVE, NATIVE_LABEL, Choice, Point, Sweep
from collplan.tune.table import Fingerprint, TuningTable
from collplan.tune.trial import Verdict


@dataclass(frozen=True, slots=True)
class State:
    """An unfinished table, what was found wrong, and who failed.

    Parameters
    ----------
    table : TuningTable
        With sweeps of earlier runs that others are added to.
    wrong : tuple of str
        Candidates whose results were wrong: where, at which size, the first element.
    failures : tuple of Failure
        Candidates that are tried no more.
    """

    table: TuningTable
    wrong: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    def sweep_of(self, goal: Goal) -> Sweep:
        """Return what is measured of a goal."""
        return goal.find(self.table) or goal.empty_sweep()

    def missing(self, goal: Goal) -> list[int]:
        """Return the sizes that are not measured yet."""
        known = {point.bytes for point in self.sweep_of(goal).points}
        return [size for size in goal.sizes if size not in known]

    def failed_of(self, goal: Goal) -> dict[str, str]:
        """Return the candidates that failed at any size of a goal, and how."""
        return {
            one.candidate: f"at {one.bytes} bytes: {one.reason}"
            for one in self.failures
            if one.sweep == str(goal)
        }

    def after(self, goal: Goal, n_bytes: int, selection: Selection, verdict: Verdict) -> State:
        """Return the state with one more point."""
        specs = {candidate.name: candidate.spec for candidate in selection.kept}
        choices = {
            name: NATIVE if name == NATIVE_LABEL else Choice.of(specs[name])
            for name in verdict.times
        }
        failed = {name: at for name, at in self.failed_of(goal).items() if name in specs}
        wrong = {name: f"wrong result: {at}" for name, at in verdict.wrong.items()}
        point = Point(
            bytes=n_bytes,
            times=verdict.times,
            winner=verdict.winner,
            skipped=selection.skipped,
            failed=failed | wrong or None,
        )
        before = self.sweep_of(goal)
        crowd = max(verdict.ranks_per_core, before.ranks_per_core or 1.0)
        sweep = before.replace(
            points=tuple(sorted((*before.points, point), key=lambda p: p.bytes)),
            choices=before.choices | choices,
            ranks_per_core=crowd if crowd > 1 else None,
        )
        sweep = sweep.replace(complete=goal.is_reached(sweep))
        sweeps = [sweep if other == before else other for other in self.table.sweeps]
        sweeps += [] if before in self.table.sweeps else [sweep]
        found = [f"{goal}, {n_bytes} bytes: {who}: {at}" for who, at in verdict.wrong.items()]
        return State(self.table.replace(sweeps=tuple(sweeps)), (*self.wrong, *found), self.failures)

    def write(self, journal: Journal) -> None:
        """Let the journal have it."""
        journal.write(self.table, self.wrong, self.failures)


def open_state(
    journal: Journal,
    goals: Sequence[Goal],
    request: Request,
    now: Fingerprint,
    *,
    restart: bool,
    attempts: Attempts | None = None,
) -> State:
    """Return what there is already: in the journal, or the table that is added to.

    Parameters
    ----------
    journal : Journal
    goals : sequence of Goal
        What is asked for.
    request : Request
    now : Fingerprint
        Of the machine and the software at hand.
    restart : bool
        Whether to begin with nothing.
    attempts : Attempts, optional
        Who may have ended the last run; begun anew.

    Raises
    ------
    CollplanError
        If there are files that this is no continuation of.
    """
    empty = TuningTable(
        fingerprint=now, numa_domains=request.numa_domains, network=request.network, sweeps=()
    )
    if restart:
        state = State(empty)
        # Whoever goes on must not add to the table that is to be replaced.
        state.write(journal)
    else:
        begun = journal.read(now)
        table = None if begun is not None else read_complete(journal.output, now)
        if begun is not None:
            state = State(*begun)
        elif table is not None:
            state = State(_to_add_to(table, goals, empty, journal, request.again))
        else:
            state = State(empty)
    return state if attempts is None else _blaming(state, journal, attempts, restart)


def _blaming(state: State, journal: Journal, attempts: Attempts, restart: bool) -> State:
    """Return a state that knows who ended the last run; the file is begun anew."""
    found = None if restart else attempts.find()
    if isinstance(found, Failure) and found not in state.failures:
        state = replace(state, failures=(*state.failures, found))
        state.write(journal)
    attempts.begin(found if isinstance(found, Attempt) else None)
    return state


def _to_add_to(
    table: TuningTable, goals: Sequence[Goal], empty: TuningTable, journal: Journal, again: bool
) -> TuningTable:
    """Return the table without what is to be measured again.

    Raises
    ------
    CollplanError
        If sweeps of other types are in the way, or the model's machine is another.
    """
    path = journal.output
    for what, before, here in (
        ("lanes", table.fingerprint.lanes, empty.fingerprint.lanes),
        ("numa_domains", table.numa_domains, empty.numa_domains),
        ("network", table.network, empty.network),
    ):
        if before != here:
            values = "" if what == "network" else f" {before}, here it is {here}"
            raise CollplanError(
                f"{path}: was tuned for a machine of other {what}{values}; give the same "
                f"--machine to add to it, another --output, {AGAIN}"
            )
    rivals = {goal: goal.find_rival(table) for goal in goals}
    for goal, rival in rivals.items():
        if rival is not None and not again:
            own, there = _measured_with(goal.empty_sweep()), _measured_with(rival)
            raise CollplanError(
                f"{path}: has {goal} measured with {there}, not {own}; say --again to replace it, "
                f"or give another --output"
            )
    gone = [*rivals.values(), *(goal.find(table) for goal in goals)] if again else []
    kept = tuple(sweep for sweep in table.sweeps if sweep not in gone)
    return table.replace(sweeps=kept, n_sweeps=None)


def _measured_with(sweep: Sweep) -> str:
    return sweep.datatype if sweep.op is None else f"{sweep.datatype} {sweep.op.name}"
