"""``collplan exec``: an unchanged mpi4py program on what the table says."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_BAD_INPUT: Final = 2
CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""What comes behind the program is the program's."""


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="APP.py ARGS...", help="The program and what it gets."),
    ],
    table: Annotated[
        Path, typer.Option(metavar="TABLE", help="The tuning table, as collplan tune writes it.")
    ],
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks",
            min=1,
            metavar="RANKS",
            help="Start so many; under mpiexec it must be as many as there are.",
        ),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="APP is a module's name, as for python -m.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Use the table though it was tuned elsewhere.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="Give up after this long.")
    ] = None,
) -> int:
    """Run an mpi4py program with collectives as a tuning table says.

    MPI.COMM_WORLD is a drop-in before the program imports it, and so is every
    communicator made from it. Starts the right mpiexec by itself where -n is
    given; under mpiexec it just runs. With COLLPLAN_LOG=1 rank 0 says at the end
    what ran. There is no --json: standard output and exit status are the
    program's.
    """
    from executors.mpi.launching.launch import is_under_mpi, relaunch
    from specs.errors import CollplanError
    from specs.tuning import load_table

    if not module and not Path(program[0]).is_file():
        raise CollplanError(f"{program[0]}: no such file; give a Python program, or -m MODULE")
    if is_under_mpi() or ranks is None:
        return _run_as_rank(program, table, ranks, module=module, force=force)
    # What is wrong with the file is said once, before any rank is started.
    load_table(table)
    line = [sys.executable, "-m", "collplan", "exec", "--table", str(table), "-n", str(ranks)]
    line += [flag for flag, is_set in (("-m", module), ("--force", force)) if is_set]
    return relaunch([*line, "--", *program], ranks, timeout_s=timeout)


def _run_as_rank(
    program: list[str], table: Path, ranks: int | None, *, module: bool, force: bool
) -> int:
    """Put the drop-in in place of the world and run the program; rank 0 speaks of mistakes."""
    from executors.mpi.launching.launch import launcher_rank
    from specs.errors import CollplanError

    try:
        replace_world(table, ranks, force=force)
    except CollplanError:
        if launcher_rank() > 0:
            return _BAD_INPUT
        raise
    return _run_program(program, module=module)


def replace_world(table: Path, ranks: int | None = None, *, force: bool = False) -> Any:
    """Make ``MPI.COMM_WORLD`` a drop-in for all who import it from now on, and return it.

    Raises
    ------
    CollplanError
        If MPI does not come up as asked, or the table does not fit; on all ranks.
    """
    # Only here: without mpi4py these are no modules that can be imported.
    from executors.comm import Comm
    from executors.mpi.world import join_world

    native = join_world(ranks)
    world = Comm(native, table=table, force=force)
    mpi = sys.modules["mpi4py.MPI"]
    mpi.COMM_WORLD = world  # type: ignore[attr-defined]
    return world


def _run_program(program: list[str], *, module: bool) -> int:
    """Run a program as Python would; a rank that fails ends the job, or others'd wait for it."""
    sys.argv = list(program)
    try:
        if module:
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0:1] = [str(Path(program[0]).resolve().parent)]
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as stop:
        return _status_of(stop)
    except BaseException:
        traceback.print_exc()
        return _abort(1)
    return 0


def _status_of(stop: SystemExit) -> int:
    """Return what a program exits with, as Python takes it; a failure ends the job."""
    if stop.code is None:
        return 0
    if not isinstance(stop.code, int):
        sys.stderr.write(f"{stop.code}\n")
        return _abort(1)
    return _abort(stop.code) if stop.code else 0


def _abort(status: int) -> int:
    """End all ranks where there are several: they could wait for this one for ever."""
    world = sys.modules["mpi4py.MPI"].COMM_WORLD
    sys.stdout.flush()
    sys.stderr.flush()
    if world.Get_size() > 1:
        world.Abort(status)
    return status
