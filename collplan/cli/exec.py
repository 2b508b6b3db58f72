"""``collplan exec``: run of an unmodified program with the collectives of a tuning table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from collplan.cli.options import (
    Options,
    argument,
    flag,
    launcher,
    n_ranks,
    option,
    parse_processors,
)
from collplan.cli.ranks import let_share, one_voice
from collplan.deciding.trial_share import TRIALS, parse_share
from collplan.specs.errors import CollplanError
from collplan.watch.options import HANG_AFTER_S, WatchOptions

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Settings that leave all arguments after the program to the program."""
_SOURCES: Final = (".c", ".cc", ".cpp", ".cxx", ".f", ".F", ".f90", ".F90", ".f08")
"""Suffixes of source code, which is no program."""


class ExecOptions(Options):
    """Options of ``collplan exec``."""

    program: list[str] = argument("APP ARGS...", "The program and its arguments.")
    table: Path = option("TABLE", "The tuning table, as collplan tune writes it.", default=...)
    ranks: int | None = n_ranks(
        "Number of ranks to start; under mpiexec it must match the world's."
    )
    module: bool = option(
        None, "APP is a module's name, as for python -m.", "-m", "--module", default=False
    )
    force: bool = flag("--force", "Use the table although it was tuned on another machine.")
    trials: float | None = option(
        "SHARE", "Share of time for trials of plans on untuned ranks; 0 for none.", min=0
    )
    cores: str | None = option(
        "P,...",
        "Processor of each core of a node: ranks are bound to it, and non-blocking collectives "
        "advance on those of cores without a rank. Cores may share processors.",
    )
    hang_after: float = option(
        "SECONDS",
        "Report a collective in which ranks have waited this long, and the program goes on; 0 for "
        "no reports.",
        default=HANG_AFTER_S,
        min=0,
    )
    check: bool = flag("--check", "Report at once where ranks make different calls.")
    timeout: float | None = option("SECONDS", "Give up after this long.", min=1)
    launcher: str | None = launcher()


def command(options: ExecOptions) -> int:
    """Run an MPI program with the collectives of a tuning table.

    A library that intercepts them is preloaded into the program, which may be one in
    C, C++, Fortran or Python. With -n the command starts the right mpiexec; under mpiexec
    it runs as a rank. With COLLPLAN_LOG=1 rank 0 prints statistics at the end, and with
    COLLPLAN_LOG=FILE.json it writes them to a file. There is no --json: standard output
    and exit status are the program's.
    """
    from collplan.executors.mpi.launch.environment import (
        is_under_mpi,
        launched_ranks,
        slurm_tasks,
    )
    from collplan.executors.mpi.launch.standard_input import take_input
    from collplan.preload.running import become

    ranks, cores = options.ranks, parse_processors(options.cores)
    watch = WatchOptions(options.hang_after, options.check)
    program, words = find_program(options.program, module=options.module)
    if options.trials is not None:
        os.environ[TRIALS] = str(parse_share(options.trials, "--trials"))
    named = "" if cores is None else ",".join(map(str, cores))
    force = options.force
    if is_under_mpi() or ranks is None:
        take_input()
        with one_voice():
            _check_ranks(ranks, launched_ranks() or slurm_tasks())
        become(program, words, options.table, force=force, watch=watch, cores=named)
    from collplan.executors.mpi.launch.jobs import relaunch
    from collplan.preload.rank_script import rank_command
    from collplan.tables.table import load_table

    # Load the table before any rank is started, so that an error is reported once.
    load_table(options.table)
    let_share(cores)
    line = rank_command(
        program,
        words,
        options.table,
        force=force,
        watch=watch,
        trials=os.environ.get(TRIALS, ""),
        cores=named,
    )
    return relaunch(line, ranks, options.timeout, reads_input=True)


def _check_ranks(asked: int | None, started: int) -> None:
    """Raise `CollplanError` if a launcher has started another number of ranks than asked."""
    if asked is not None and started not in (0, asked):
        raise CollplanError(
            f"-n: {asked} ranks are asked for, but the launcher has started {started}; leave -n out"
        )


def find_program(words: list[str], *, module: bool) -> tuple[Path, list[str]]:
    """Find a program.

    Parameters
    ----------
    words : list of str
        The program and its arguments.
    module : bool
        Whether the program is the name of a Python module.

    Returns
    -------
    program : Path
        The file to execute: the program itself, or the interpreter of a Python program.
    words : list of str
        Its command line.

    Raises
    ------
    CollplanError
        If there is no such program.
    """
    from collplan.preload.running import native_program, python_command, without_interpreter

    if not module:
        words = without_interpreter(words)
        if words[0] == "-m":
            words, module = words[1:], True
    if not module and Path(words[0]).suffix in _SOURCES:
        raise CollplanError(
            f"{words[0]}: is source code; compile it with mpicc or mpifort, and give the program"
        )
    native = None if module else native_program(words[0])
    if native is not None:
        return native, words
    if not module and not Path(words[0]).is_file():
        raise CollplanError(f"{words[0]}: no such file; give a program, or -m MODULE")
    return Path(sys.executable), python_command(words, module=module)
