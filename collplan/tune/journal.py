"""Journals of tuning runs: a file beside the table from which an interrupted run continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from collplan.planner.formats.output_files import write_text
from collplan.planner.machine_code.code_folders import locked
from collplan.specs.errors import CollplanError
from collplan.tables.sweep import NATIVE, NATIVE_LABEL, Choice, Point, Sweep, Time
from collplan.tables.table import Fingerprint, TuningTable, load_table, parse_table
from collplan.tune.candidates import MeasuredCandidates
from collplan.tune.crash_log import Attempt, CrashLog, Failure
from collplan.tune.options import Goal, TuningJob
from collplan.tune.trial import Verdict

FORMAT: Final = "collplan-tuning"
VERSION: Final = 1
SUFFIX: Final = ".part"
OR_RESTART: Final = "or start over with --restart"
"""Last part of messages about files that a run cannot continue."""


class Journal:
    """A file with an unfinished table and the arguments with which its run was started.

    Parameters
    ----------
    output : Path
        Path of the complete table.
    arguments : mapping
        All arguments that affect the measurements, as values for JSON.
    """

    def __init__(self, output: Path, arguments: Mapping[str, Any]) -> None:
        self.output = output
        self.path = output.with_name(output.name + SUFFIX)
        self._arguments = dict(arguments)

    def read(self, fingerprint: Fingerprint) -> JournalState | None:
        """Return the state that the journal contains; None if there is no journal.

        Parameters
        ----------
        fingerprint : Fingerprint
            Fingerprint of the current machine and software.

        Raises
        ------
        CollplanError
            If the journal was started with other arguments or on another machine.
        """
        if not self.path.exists():
            return None
        document = self._load()
        begun: Mapping[str, Any] = document["arguments"]
        for name in sorted(begun.keys() | self._arguments.keys()):
            before, now = begun.get(name), self._arguments.get(name)
            if before != now:
                raise CollplanError(
                    f"{self.path}: was begun with {name} {_shown(before)}, now it is "
                    f"{_shown(now)}; give the same to go on, {OR_RESTART}"
                )
        table = parse_table(document["table"], source=str(self.path))
        check_fingerprint(self.path, table.fingerprint, fingerprint)
        failures = tuple(Failure(**entry) for entry in document.get("failures", ()))
        return JournalState(table, tuple(document["wrong"]), failures)

    def write(self, state: JournalState) -> None:
        """Replace the file atomically by one that contains the given state."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "arguments": self._arguments,
            "wrong": list(state.wrong),
            "failures": [asdict(failure) for failure in state.failures],
            "table": state.table.model_dump(mode="json", exclude_none=True),
        }
        write_text(self.path, json.dumps(document) + "\n")

    def remove(self) -> None:
        """Delete the file, when the table is complete or is started over."""
        self.path.unlink(missing_ok=True)

    def _load(self) -> dict[str, Any]:
        try:
            document: Any = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CollplanError(
                f"{self.path}: cannot be read ({error}); start over with --restart"
            ) from None
        known = isinstance(document, dict) and (document.get("format"), document.get("version"))
        if known != (FORMAT, VERSION):
            raise CollplanError(
                f"{self.path}: is not an unfinished tuning of this collplan; "
                f"remove it, {OR_RESTART}"
            )
        return dict(document)


def read_complete(output: Path, fingerprint: Fingerprint) -> TuningTable | None:
    """Return the table that exists at the output path; None if there is no file.

    Raises
    ------
    CollplanError
        If the file is not a table, or a table of another machine or software.
    """
    if not output.exists():
        return None
    try:
        table = load_table(output)
    except CollplanError as error:
        raise CollplanError(
            f"{error}: it would be replaced; give another --output, {OR_RESTART}"
        ) from None
    check_fingerprint(output, table.fingerprint, fingerprint)
    return table


def check_fingerprint(path: Path, before: Fingerprint, now: Fingerprint) -> None:
    """Raise `CollplanError` if a file was measured with another fingerprint.

    The message names the first field that differs, and both values.
    """
    for name, old, new in before.differences(now):
        raise CollplanError(
            f"{path}: was measured with {name} {old}, here is {new}; "
            f"give another --output, {OR_RESTART}"
        )


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class JournalState:
    """An unfinished table, the wrong results that were found, and the failed candidates.

    Parameters
    ----------
    table : TuningTable
        Unfinished table, which also contains the sweeps of the existing table to which the run
        adds.
    wrong : tuple of str
        Lines that name a sweep, a size, a candidate with wrong results, and the first
        wrong element.
    failures : tuple of Failure
        Candidates that crashed or did not end, and are not tried again.
    """

    table: TuningTable
    wrong: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    def sweep_of(self, goal: Goal) -> Sweep:
        """Return the sweep of a goal with the points measured thus far."""
        return goal.find(self.table) or goal.empty_sweep()

    def missing(self, goal: Goal) -> list[int]:
        """Return the message sizes of a goal, in bytes, that are not measured yet."""
        known = {point.bytes for point in self.sweep_of(goal).points}
        return [size for size in goal.sizes if size not in known]

    def failed_of(self, goal: Goal) -> dict[str, str]:
        """Return the reasons by candidate, for candidates that failed at any size of a goal."""
        return {
            one.candidate: f"at {one.bytes} bytes: {one.reason}"
            for one in self.failures
            if one.sweep == str(goal)
        }

    def after(
        self, goal: Goal, n_bytes: int, selection: MeasuredCandidates, verdict: Verdict
    ) -> JournalState:
        """Return the state with one more point.

        Parameters
        ----------
        goal : Goal
            Sweep of the point.
        n_bytes : int
            Message size in bytes.
        selection : MeasuredCandidates
            Candidates that were to be measured.
        verdict : Verdict
            Measured times, winner and wrong results.
        """
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
        ranks_per_core = max(verdict.ranks_per_core, before.ranks_per_core or 1.0)
        sweep = before.replace(
            points=tuple(sorted((*before.points, point), key=lambda p: p.bytes)),
            choices=before.choices | choices,
            ranks_per_core=ranks_per_core if ranks_per_core > 1 else None,
        )
        known = {point.bytes for point in sweep.points}
        sweep = sweep.replace(complete=known >= {*goal.sizes})
        sweeps = [sweep if other == before else other for other in self.table.sweeps]
        sweeps += [] if before in self.table.sweeps else [sweep]
        lines = [f"{goal}, {n_bytes} bytes: {name}: {at}" for name, at in verdict.wrong.items()]
        return JournalState(
            self.table.replace(sweeps=tuple(sweeps)), (*self.wrong, *lines), self.failures
        )

    def table_won_by(
        self, goal: Goal, n_bytes: int, selection: MeasuredCandidates, name: str
    ) -> TuningTable:
        """Return a table of one size, at which a candidate has won.

        Parameters
        ----------
        goal : Goal
            Sweep of the size.
        n_bytes : int
            Message size in bytes.
        selection : MeasuredCandidates
            Candidates, of which one has won.
        name : str
            Name of this candidate.
        """
        alone = JournalState(self.table.replace(sweeps=()))
        times = {NATIVE_LABEL: _time(2.0), name: _time(1.0)}
        sized = replace(goal, sizes=(n_bytes,))
        return alone.after(sized, n_bytes, selection, Verdict(times, name)).table


def _time(seconds: float) -> Time:
    return Time(median_s=seconds, low_s=seconds, high_s=seconds, n=1)


def open_state(
    journal: Journal,
    goals: Sequence[Goal],
    job: TuningJob,
    now: Fingerprint,
    *,
    restart: bool,
    crash_log: CrashLog | None = None,
) -> JournalState:
    """Return the state from which a run starts.

    This is the state of the journal if there is one, else that of the table at the output
    path if there is one, else an empty state.

    Parameters
    ----------
    journal : Journal
    goals : sequence of Goal
        Sweeps to measure.
    job : TuningJob
    now : Fingerprint
        Fingerprint of the current machine and software.
    restart : bool
        Whether to ignore the files of earlier runs.
    crash_log : CrashLog, optional
        Log that names the candidate that ended the last run, if one did; a new log is
        created in its place.

    Raises
    ------
    CollplanError
        If this run cannot continue the files that exist.
    """
    empty = TuningTable(
        fingerprint=now, numa_domains=job.numa_domains, network=job.network, sweeps=()
    )
    state = None if restart else journal.read(now)
    table = None if restart or state is not None else read_complete(journal.output, now)
    if table is not None:
        state = JournalState(_to_add_to(table, goals, empty, journal, job.again))
    state = state or JournalState(empty)
    if restart:
        # If this run is killed, the next one must not add to the table that is being replaced.
        journal.write(state)
    return state if crash_log is None else _with_last_failure(state, journal, crash_log, restart)


def _with_last_failure(
    state: JournalState, journal: Journal, crash_log: CrashLog, restart: bool
) -> JournalState:
    """Add the candidate that ended the last run to a state, and create a new crash log."""
    found = None if restart else crash_log.find()
    if isinstance(found, Failure) and found not in state.failures:
        state = replace(state, failures=(*state.failures, found))
        journal.write(state)
    crash_log.begin(found if isinstance(found, Attempt) else None)
    return state


def _to_add_to(
    table: TuningTable, goals: Sequence[Goal], empty: TuningTable, journal: Journal, again: bool
) -> TuningTable:
    """Return the existing table to which a run adds, without the sweeps that it measures again.

    Raises
    ------
    CollplanError
        If the table was tuned for another machine model, or has sweeps of the same
        collectives with another datatype, operation or computation.
    """
    path = journal.output
    for what, before, here in (
        ("lanes", table.fingerprint.lanes, empty.fingerprint.lanes),
        ("numa_domains", table.numa_domains, empty.numa_domains),
        ("network", table.network, empty.network),
    ):
        if before != here:
            other = (
                "another network" if what == "network" else f"{what} {before}, here it is {here}"
            )
            raise CollplanError(
                f"{path}: was tuned for a machine with {other}; give the same "
                f"--machine to add to it, another --output, {OR_RESTART}"
            )
    rivals = [goal.find(table, of_rival=True) for goal in goals]
    for goal, rival in zip(goals, rivals, strict=True):
        if rival is not None and not again:
            own, there = _measured_with(goal.empty_sweep()), _measured_with(rival)
            raise CollplanError(
                f"{path}: has {goal} measured with {there}, not {own}; say --again to replace it, "
                f"or give another --output"
            )
    dropped = [*rivals, *(goal.find(table) for goal in goals)] if again else []
    kept = tuple(sweep for sweep in table.sweeps if sweep not in dropped)
    return table.replace(sweeps=kept, n_sweeps=None)


def _measured_with(sweep: Sweep) -> str:
    words = [sweep.datatype] if sweep.op is None else [sweep.datatype, sweep.op.name]
    if sweep.computation_s is not None:
        words.append(f"beside {sweep.computation_s:g} s on nodes of {sweep.cores} cores")
    return " ".join(words)


PATIENCE_S: Final = 20.0
"""Time in seconds for which a new run waits for the end of an earlier run."""

_LOCK_POLL_S: Final = 0.2


@contextmanager
def claimed(output: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold an exclusive lock on a table while it is tuned.

    The kernel releases the lock of a process that ends.

    Parameters
    ----------
    output : Path
        Path of the table.
    patience_s : float
        Time to wait for another run to release the lock, in seconds.

    Raises
    ------
    CollplanError
        If another run still holds the lock, or the lock file cannot be written.
    """
    path = output.with_name(f".{output.name}.lock")
    with ExitStack() as held:
        try:
            is_held = held.enter_context(locked(path, patience_s, _LOCK_POLL_S))
        except OSError as error:
            raise CollplanError(
                f"{output}: cannot be written: {error.strerror}; give another path"
            ) from None
        if not is_held:
            raise CollplanError(
                f"{output}: another run is tuning it; wait for that, or give another --output"
            )
        yield
        path.unlink(missing_ok=True)
