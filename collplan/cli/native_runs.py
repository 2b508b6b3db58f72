"""Runs of programs with the MPI library's own collectives, which count and time all calls."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collplan.cli.exec import find_program
from collplan.cli.options import Options, argument, n_ranks, option
from collplan.cli.ranks import ranks_to_start, run_again
from collplan.reports.progress import shows_progress
from collplan.specs.errors import CollplanError
from collplan.watch.trace import TRACE, ProgramTrace, read_trace

_EMPTY: Final = "COLLPLAN_PROFILE_TABLE"
"""Environment variable with the path of an empty table, which makes all collectives native."""


class ProgramOptions(Options):
    """Options of commands that count the calls of a program."""

    program: list[str] = argument("APP ARGS...", "The program and its arguments.")
    ranks: int | None = n_ranks()
    module: bool = option(
        None, "APP is a module's name, as for python -m.", "-m", "--module", default=False
    )


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


def ranks_of(command: str, options: ProgramOptions) -> int:
    """Return the number of ranks to start for a program.

    A process that such a command has started as a rank is replaced with the program, which runs
    with an empty table.

    Parameters
    ----------
    command : str
        Name of the command, for messages.
    options : ProgramOptions
        The program, and the number of ranks.

    Raises
    ------
    CollplanError
        If there is no such program, if the number is missing, or if the user has started the ranks.
    """
    from collplan.executors.mpi.launch.environment import is_under_mpi
    from collplan.preload.running import become

    if is_under_mpi() and _EMPTY not in os.environ:
        raise CollplanError(f"{command}: starts the ranks itself; leave mpiexec out, and give -n")
    program = find_program(options.program, module=options.module)
    if is_under_mpi():
        become(*program, Path(os.environ[_EMPTY]), force=True)
    return ranks_to_start(options.ranks, 4)


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
