"""Runs of programs with the MPI library's own collectives, which count and time all calls."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from collplan.cli.exec import find_program
from collplan.cli.ranks import run_again
from collplan.reports.progress import shows_progress
from collplan.specs.errors import CollplanError
from collplan.watch.trace import TRACE, ProgramTrace, read_trace

_EMPTY: Final = "COLLPLAN_PROFILE_TABLE"
"""Environment variable with the path of an empty table, which makes all collectives native."""


@dataclass(frozen=True, slots=True)
class NativeRun:
    """A program that has run.

    Parameters
    ----------
    status : int
        Exit status of the program.
    statistics : dict or None
        `Statistics.as_dict` of rank 0; None if there are none.
    trace : ProgramTrace or None
        Times of all blocking calls; None if they are missing.
    why_no_trace : str
        Reason why they are missing.
    """

    status: int
    statistics: dict[str, Any] | None
    trace: ProgramTrace | None
    why_no_trace: str


def run_as_rank(command: str, words: list[str], *, module: bool) -> NoReturn:
    """Replace this process with a program that runs as a rank with an empty table.

    Parameters
    ----------
    command : str
        Name of the command, for messages.
    words : list of str
        The program and its arguments.
    module : bool
        Whether the program is the name of a Python module.

    Raises
    ------
    CollplanError
        If the user has started the ranks.
    """
    from collplan.preload.running import become

    if _EMPTY not in os.environ:
        raise CollplanError(f"{command}: starts the ranks itself; leave mpiexec out, and give -n")
    become(*find_program(words, module=module), Path(os.environ[_EMPTY]), force=True)


def run_natively(n: int, timeout_s: float | None, name: str) -> NativeRun:
    """Run this command again on ranks, and return what they have counted.

    Parameters
    ----------
    n : int
        Number of ranks.
    timeout_s : float or None
        Time limit in seconds.
    name : str
        Name of the program, for messages.

    Raises
    ------
    CollplanError
        If the program has succeeded, but nothing was counted.
    """
    from collplan.deciding.statistics import FILE

    with tempfile.TemporaryDirectory(prefix="collplan-") as folder:
        found, empty = Path(folder, "statistics.json"), Path(folder, "empty.json")
        _write_empty_table(empty)
        os.environ |= {FILE: str(found), _EMPTY: str(empty), TRACE: folder}
        try:
            status = run_again(n, timeout_s, shown=shows_progress(), reads_input=True)
        finally:
            for variable in (FILE, _EMPTY, TRACE):
                del os.environ[variable]
        statistics = json.loads(found.read_text()) if found.is_file() else None
        trace, why = None, ""
        try:
            trace = read_trace(Path(folder), n)
        except CollplanError as error:
            why = str(error)
    if statistics is None and status == 0:
        raise CollplanError(f"{name}: called no collective that could be counted; does it use MPI?")
    return NativeRun(status, statistics, trace, why)


def _write_empty_table(path: Path) -> None:
    from collplan.tables.fingerprint import fingerprint_of
    from collplan.tables.table import TuningTable, save_table

    save_table(TuningTable(fingerprint=fingerprint_of("any", 1), sweeps=()), path)
