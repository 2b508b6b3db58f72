"""The journal of a tuning run: a file beside the table from which a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from collplan.planner.formats.output_files import write_text
from collplan.specs.errors import CollplanError
from collplan.tune.candidates import Selection
from collplan.tune.crash_log import Attempt, CrashLog, Failure
from collplan.tune.options import Goal, TuningJob
from collplan.tune.sweep import NATIVE, NATIVE_LABEL, Choice, Point, Sweep
from collplan.tune.table import Fingerprint, TuningTable, load_table, parse_table
from collplan.tune.trial import Verdict

FORMAT: Final = "collplan-tuning"
VERSION: Final = 1
SUFFIX: Final = ".part"
AGAIN: Final = "or start over with --restart"


class Journal:
    """The unfinished table of one output file, and with which arguments it was begun.

    Parameters
    ----------
    output : Path
        Where the table goes when it is complete.
    arguments : mapping
        Everything that decides what is measured, as JSON can hold it.
    """

    def __init__(self, output: Path, arguments: Mapping[str, Any]) -> None:
        self.output = output
        self.path = output.with_name(output.name + SUFFIX)
        self._arguments = dict(arguments)

    def read(self, fingerprint: Fingerprint) -> State | None:
        """Return the state there is already; None if there is none.

        Parameters
        ----------
        fingerprint : Fingerprint
            Of the machine and the software at hand.

        Raises
        ------
        CollplanError
            If it was begun with other arguments, or elsewhere.
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
                    f"{_shown(now)}; give the same to go on, {AGAIN}"
                )
        table = parse_table(document["table"], source=str(self.path))
        check_fingerprint(self.path, table.fingerprint, fingerprint)
        failures = tuple(Failure(**entry) for entry in document.get("failures", ()))
        return State(table, tuple(document["wrong"]), failures)

    def write(self, state: State) -> None:
        """Take the place of what was written before, whole or not at all."""
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
        """Forget everything: the table is complete, or will be begun again."""
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
                f"{self.path}: is not an unfinished tuning of this collplan; remove it, {AGAIN}"
            )
        return dict(document)


def read_complete(output: Path, fingerprint: Fingerprint) -> TuningTable | None:
    """Return the table that is there already; None if there is none.

    Raises
    ------
    CollplanError
        If there is something else, or a table of another machine or software.
    """
    if not output.exists():
        return None
    try:
        table = load_table(output)
    except CollplanError as error:
        raise CollplanError(
            f"{error}: it would be replaced; give another --output, {AGAIN}"
        ) from None
    check_fingerprint(output, table.fingerprint, fingerprint)
    return table


def check_fingerprint(path: Path, before: Fingerprint, now: Fingerprint) -> None:
    """See that a file was measured here.

    Raises
    ------
    CollplanError
        Naming the first field that differs, and both values.
    """
    for name, old, new in before.differences(now):
        raise CollplanError(
            f"{path}: was measured with {name} {old}, here is {new}; give another --output, {AGAIN}"
        )


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


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
        known = {point.bytes for point in sweep.points}
        sweep = sweep.replace(complete=known >= {*goal.sizes})
        sweeps = [sweep if other == before else other for other in self.table.sweeps]
        sweeps += [] if before in self.table.sweeps else [sweep]
        found = [f"{goal}, {n_bytes} bytes: {who}: {at}" for who, at in verdict.wrong.items()]
        return State(self.table.replace(sweeps=tuple(sweeps)), (*self.wrong, *found), self.failures)


def open_state(
    journal: Journal,
    goals: Sequence[Goal],
    job: TuningJob,
    now: Fingerprint,
    *,
    restart: bool,
    crash_log: CrashLog | None = None,
) -> State:
    """Return what there is already: in the journal, or the table that is added to.

    Parameters
    ----------
    journal : Journal
    goals : sequence of Goal
        What is asked for.
    job : TuningJob
    now : Fingerprint
        Of the machine and the software at hand.
    restart : bool
        Whether to begin with nothing.
    crash_log : CrashLog, optional
        The candidates that may have ended the last run; begun again.

    Raises
    ------
    CollplanError
        If there are files that this is no continuation of.
    """
    empty = TuningTable(
        fingerprint=now, numa_domains=job.numa_domains, network=job.network, sweeps=()
    )
    state = None if restart else journal.read(now)
    table = None if restart or state is not None else read_complete(journal.output, now)
    if table is not None:
        state = State(_to_add_to(table, goals, empty, journal, job.again))
    state = state or State(empty)
    if restart:
        # Whoever goes on must not add to the table that is to be replaced.
        journal.write(state)
    return state if crash_log is None else _blaming(state, journal, crash_log, restart)


def _blaming(state: State, journal: Journal, crash_log: CrashLog, restart: bool) -> State:
    """Return a state that knows what ended the last run; the file is begun again."""
    found = None if restart else crash_log.find()
    if isinstance(found, Failure) and found not in state.failures:
        state = replace(state, failures=(*state.failures, found))
        journal.write(state)
    crash_log.begin(found if isinstance(found, Attempt) else None)
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
    rivals = [goal.find(table, of_rival=True) for goal in goals]
    for goal, rival in zip(goals, rivals, strict=True):
        if rival is not None and not again:
            own, there = _measured_with(goal.empty_sweep()), _measured_with(rival)
            raise CollplanError(
                f"{path}: has {goal} measured with {there}, not {own}; say --again to replace it, "
                f"or give another --output"
            )
    gone = [*rivals, *(goal.find(table) for goal in goals)] if again else []
    kept = tuple(sweep for sweep in table.sweeps if sweep not in gone)
    return table.replace(sweeps=kept, n_sweeps=None)


def _measured_with(sweep: Sweep) -> str:
    words = [sweep.datatype] if sweep.op is None else [sweep.datatype, sweep.op.name]
    if sweep.computation_s is not None:
        words.append(f"beside {sweep.computation_s:g} s on nodes of {sweep.cores} cores")
    return " ".join(words)
