"""What a tuning run has done so far, in a file beside the table: a killed run goes on there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from collplan.planner.formats.output_files import write_text
from collplan.specs.errors import CollplanError
from collplan.tune.crash_log import Failure
from collplan.tune.table import Fingerprint, TuningTable, load_table, parse_table

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

    def read(
        self, fingerprint: Fingerprint
    ) -> tuple[TuningTable, tuple[str, ...], tuple[Failure, ...]] | None:
        """Return what there is already, what was found wrong, and who failed; None if nothing is.

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
        return table, tuple(document["wrong"]), failures

    def write(
        self, table: TuningTable, wrong: Sequence[str], failures: Sequence[Failure] = ()
    ) -> None:
        """Take the place of what was written before, whole or not at all."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "arguments": self._arguments,
            "wrong": list(wrong),
            "failures": [asdict(failure) for failure in failures],
            "table": table.model_dump(mode="json", exclude_none=True),
        }
        write_text(self.path, json.dumps(document) + "\n")

    def remove(self) -> None:
        """Forget all: the table is complete, or to be begun anew."""
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
                f"{self.path}: is no unfinished tuning of this collplan; remove it, {AGAIN}"
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
