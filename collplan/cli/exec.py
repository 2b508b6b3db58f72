"""``collplan exec``: run of an unmodified program with the collectives of a tuning table."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from collplan.cli.garbage import collect_as_usual
from collplan.cli.options import (
    Options,
    argument,
    flag,
    launcher,
    n_ranks,
    option,
    parse_processors,
)
from collplan.cli.ranks import ending_all, let_share, one_voice, run_again
from collplan.reports.output import restore_streams
from collplan.specs.errors import CollplanError
from collplan.watch.options import HANG_AFTER_S, WatchOptions
from collplan.watch.trace import TRACE

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

    A program in C, C++ or Fortran gets a library that intercepts them. In one
    of mpi4py, MPI.COMM_WORLD is replaced by a drop-in before the program imports it, and
    so is every communicator made from it. With -n the command starts the right
    mpiexec; under mpiexec it runs as a rank. With COLLPLAN_LOG=1 rank 0 prints
    statistics at the end, and with COLLPLAN_LOG=FILE.json it writes them to a file.
    There is no --json: standard output and exit status are the program's.
    """
    from collplan.executors.mpi.launch.environment import is_under_mpi
    from collplan.executors.mpi.launch.standard_input import take_input
    from collplan.preload.running import become

    ranks, cores = options.ranks, parse_processors(options.cores)
    watch = WatchOptions(options.hang_after, options.check)
    native, program, module = find_program(options.program, module=options.module)
    if native is not None and (options.trials is not None or cores is not None):
        raise CollplanError(f"--trials and --cores are for programs in Python, {native} is not one")
    if is_under_mpi() or ranks is None:
        take_input()
        if native is not None:
            become(native, program, options.table, force=options.force, watch=watch)
        with one_voice():
            replace_world(
                options.table,
                ranks,
                force=options.force,
                trials=options.trials,
                cores=cores,
                watch=watch,
            )
        return run_program(program, module=module)
    from collplan.tune.table import load_table

    # Load the table before any rank is started, so that an error is reported once.
    load_table(options.table)
    if native is not None:
        from collplan.executors.mpi.launch.jobs import relaunch
        from collplan.preload.rank_script import rank_command

        line = rank_command(native, program, options.table, force=options.force, watch=watch)
        return relaunch(line, ranks, options.timeout, reads_input=True)
    let_share(cores)
    return run_again(ranks, options.timeout, reads_input=True)


def find_program(words: list[str], *, module: bool) -> tuple[Path | None, list[str], bool]:
    """Find a program and its kind.

    Parameters
    ----------
    words : list of str
        The program and its arguments.
    module : bool
        Whether the program is the name of a Python module.

    Returns
    -------
    native : Path or None
        The file of a program in C, C++ or Fortran; None for a Python program.
    words : list of str
        The program and its arguments, without the Python interpreter.
    module : bool
        Whether the program is the name of a Python module.

    Raises
    ------
    CollplanError
        If there is no such program.
    """
    from collplan.preload.running import native_program, without_interpreter

    if not module:
        words = without_interpreter(words)
        if words[0] == "-m":
            words, module = words[1:], True
    if not module and Path(words[0]).suffix in _SOURCES:
        raise CollplanError(
            f"{words[0]}: is source code; compile it with mpicc or mpifort, and give the program"
        )
    native = None if module else native_program(words[0])
    if native is None and not module and not Path(words[0]).is_file():
        raise CollplanError(f"{words[0]}: no such file; give a program, or -m MODULE")
    return native, words, module


def replace_world(
    table: Path,
    ranks: int | None = None,
    *,
    force: bool = False,
    trials: float | None = None,
    cores: Sequence[int] | None = None,
    watch: WatchOptions | None = None,
) -> Any:
    """Replace ``MPI.COMM_WORLD`` by a drop-in communicator, and return it.

    Modules that import ``MPI.COMM_WORLD`` later get the drop-in.

    Parameters
    ----------
    table : Path
        Path of the tuning table.
    ranks : int, optional
        Required number of ranks.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.
    trials : float, optional
        Share of time for trials of plans, see `Comm`.
    cores : sequence of int, optional
        Processor id of each core of a node, to which ranks are bound.
    watch : WatchOptions, optional
        Choice of what is reported about ranks that wait; by default, nothing.

    Raises
    ------
    CollplanError
        On all ranks, if MPI has another number of ranks, or the table or the cores are not
        valid here.
    """
    # Imported late, because these modules cannot be imported without mpi4py.
    from collplan.dropin.communicators import Comm
    from collplan.dropin.persistent import count_all_starts
    from collplan.dropin.unseen import watch as watch_unseen
    from collplan.dropin.watching import start_watching
    from collplan.executors.mpi.world import join_world

    native = join_world(ranks)
    with ending_all(native):
        if cores is not None:
            _go_to_core(native, cores)
        world = Comm(native, table=table, force=force, trials=trials, cores=cores)
        mpi: Any = sys.modules["mpi4py.MPI"]
        mpi.COMM_WORLD = world
        count_all_starts(mpi)
        if native.rank == 0:
            watch_unseen(world.stats())
        watch = watch or WatchOptions()
        if (watch.is_on or os.environ.get(TRACE)) and native.size > 1:
            start_watching(native, world, watch)
        _let_programs_initialize(mpi)
    return world


def _go_to_core(comm: Any, cores: Sequence[int]) -> None:
    """Bind this rank to the processor of its core; collective."""
    from collplan.executors.mpi.host.cores import pin_thread
    from collplan.measure.lanes import node_of_ranks
    from collplan.programs.progress_places import find_places

    own = find_places(comm, node_of_ranks(comm), cores).own
    if own is not None:
        # Bind before the number of ranks per core is first queried, as that is cached.
        pin_thread(own)


def _let_programs_initialize(mpi: Any) -> None:
    """Let programs call ``MPI.Init`` although MPI is already initialized.

    Programs do so if they have set ``mpi4py.rc.initialize`` to False. The call has no effect.
    """
    rc = sys.modules["mpi4py"].rc
    rc.initialize, rc.finalize = True, None  # the defaults of mpi4py
    native_init, native_init_thread = mpi.Init, mpi.Init_thread

    def is_for_us() -> bool:
        return not rc.initialize and not mpi.Is_finalized()

    @wraps(native_init)
    def init() -> None:
        if not is_for_us():
            native_init()

    @wraps(native_init_thread)
    def init_thread(required: int = mpi.THREAD_MULTIPLE) -> int:
        provided: int = mpi.Query_thread() if is_for_us() else native_init_thread(required)
        return provided

    mpi.Init, mpi.Init_thread = init, init_thread


def run_program(program: list[str], *, module: bool) -> int:
    """Run a program as Python would, and return its exit status.

    If the program raises an exception on a rank, the job ends, as other ranks would wait for this
    rank.
    """
    restore_streams()
    collect_as_usual()
    sys.argv = list(program)
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this command
    folder = Path.cwd() if module else Path(program[0]).resolve().parent
    sys.path.insert(0, str(folder))
    try:
        if module:
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as stop:
        return _status_of(stop)
    except BaseException:
        traceback.print_exc()
        _abort()
        return 1
    return 0


def _status_of(stop: SystemExit) -> int:
    """Return the exit status of a program that calls ``sys.exit``, by the rules of Python.

    The other ranks go on, as they do without collplan.
    """
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _abort() -> None:
    """End all ranks if there are several, as they could wait forever."""
    from collplan.executors.mpi.together import abort

    world = sys.modules["mpi4py.MPI"].COMM_WORLD
    if world.Get_size() > 1:
        abort(world, 1)
