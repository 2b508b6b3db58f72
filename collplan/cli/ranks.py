"""Commands that run on MPI ranks: start of the ranks, and errors that rank 0 reports for all."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from collplan.reports.output import Document
from collplan.reports.progress import PROGRESS, progress_bar, shows_progress
from collplan.specs.errors import CollplanError

Advance = Callable[[], None]

BAD_INPUT: Final = 2
_arguments: list[str] = []
"""Arguments of this process's command."""


def remember_arguments(arguments: Sequence[str]) -> None:
    """Store the arguments of the command, so that started ranks can run the same command."""
    _arguments[:] = arguments


def own_command(*arguments: object) -> list[str]:
    """Return the command line that runs this installation of collplan with `arguments`.

    The command line names a file of collplan by its path, and ``-P`` excludes the working
    directory from Python's search path. Therefore no module of the working directory is
    imported, except the files that ``--import`` names.
    """
    from collplan.own_algorithms import own_files

    # The environment names these files, too, but launchers may not pass it on to other nodes.
    imports = [word for path in own_files() for word in ("--import", path)]
    start = Path(__file__).parents[1] / "__main__.py"
    return [sys.executable, "-P", str(start), *imports, *map(str, arguments)]


def let_share(cores: Sequence[int] | None) -> None:
    """Set the variables that the MPI library needs if `cores` makes ranks share processors.

    The number of ranks may be smaller than that of processors in this case.
    """
    from collplan.executors.mpi.launch.environment import launch_environment
    from collplan.executors.mpi.launch.select import select_launcher

    if cores is not None and len(set(cores)) < len(cores):
        family = select_launcher().library.family
        n_ranks = (os.cpu_count() or 1) + 1
        os.environ.update(launch_environment(family, n_ranks, are_late=True))


def run_again(
    n_ranks: int,
    timeout_s: float | None,
    *,
    shown: bool = False,
    but: Sequence[str] = (),
    reads_input: bool = False,
) -> int:
    """Run this command again on `n_ranks` ranks, with the same arguments.

    Parameters
    ----------
    n_ranks : int
        Number of ranks to start.
    timeout_s : float, optional
        Time in seconds after which the ranks are stopped.
    shown : bool
        Whether the ranks show progress.
    but : sequence of str
        Arguments to leave out.
    reads_input : bool
        Whether rank 0 gets the standard input of this process.

    Returns
    -------
    int
        Exit status of the ranks.
    """
    from collplan.executors.mpi.launch.jobs import relaunch

    words = [word for word in _arguments if word not in but]
    before = os.environ.get(PROGRESS)
    os.environ[PROGRESS] = str(int(shown))
    try:
        program = own_command(*words)
        return relaunch(program, n_ranks, timeout_s=timeout_s, reads_input=reads_input)
    finally:
        os.environ.pop(PROGRESS)
        if before is not None:
            os.environ[PROGRESS] = before


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement with checked input, which is the same on all ranks.

    Parameters
    ----------
    measure : callable
        Function that takes a communicator and a callback. It measures on the ranks of the
        communicator, calls the callback after each step, and returns the same on all ranks.
    show : callable
        Function that prints the result and then plots it. It is called on rank 0 only.
    n_ranks : int or None
        Required number of ranks; None if any number is valid.
    n_steps : callable
        Function that returns the number of steps of `measure`; called on the ranks.
    """

    measure: Callable[[Any, Advance], Document]
    show: Callable[[Document], object]
    n_ranks: int | None
    n_steps: Callable[[], int]


def count_repetitions(n_series: int, repetitions: int) -> int:
    """Return the total number of repetitions of `n_series` series, including warm-ups."""
    from collplan.measure.timing import WARM_UPS

    return n_series * (WARM_UPS + repetitions)


def run_benchmark(
    prepare: Callable[[], Benchmark],
    timeout_s: float | None,
    progress: bool | None,
    *,
    default: Callable[[], int | None] = lambda: None,
    example: int = 8,
) -> int:
    """Run a benchmark on the ranks of a running MPI job, or start ranks for it.

    Parameters
    ----------
    prepare : callable
        Function that checks the options and returns the benchmark. It is called in this process
        before ranks are started, and on each rank.
    timeout_s : float, optional
        Time in seconds after which started ranks are stopped.
    progress : bool, optional
        Whether to show progress; by default, if standard error is a terminal.
    default : callable
        Function that returns the number of ranks to start if the benchmark does not require
        one; None if there is no default.
    example : int
        Number of ranks that the error message suggests if the number is unknown.

    Returns
    -------
    int
        Exit status; 1 if a result is wrong.

    Raises
    ------
    CollplanError
        If the input is invalid, in this process or on a rank.
    """
    from collplan.executors.mpi.launch.environment import is_under_mpi

    shown = shows_progress(progress)
    if is_under_mpi():
        with one_voice():
            return _run_as_rank(prepare, shown)
    n_ranks = ranks_to_start(prepare().n_ranks or default(), example)
    return run_again(n_ranks, timeout_s, shown=shown)


def ranks_to_start(n_ranks: int | None, example: int) -> int:
    """Return the number of ranks to start; raise `CollplanError` if it is None."""
    if n_ranks is None:
        raise CollplanError(
            f"-n: is missing outside mpiexec; say how many ranks to start, as -n {example}"
        )
    return n_ranks


def _run_as_rank(prepare: Callable[[], Benchmark], is_shown: bool) -> int:
    from collplan.executors.mpi.stall.timed_collectives import RollCall
    from collplan.executors.mpi.world import join_world

    comm: Any = join_world()
    with ending_all(comm):
        benchmark = RollCall(comm, None, "check the options").together(prepare)
        join_world(benchmark.n_ranks)
        with progress_bar("measuring", benchmark.n_steps(), is_shown and comm.rank == 0) as update:
            document = benchmark.measure(comm, partial(update, advance=1))
    if comm.rank == 0:
        benchmark.show(document)
    return 0 if document.get("correct", True) else 1


@contextmanager
def ending_all(comm: Any, too_large: str | None = None) -> Iterator[None]:
    """End all ranks, within a context, if an error ends this rank, as they would wait for it.

    `CollplanError` is not handled, because all ranks raise it together.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    too_large : str, optional
        Error message for a lack of memory.
    """
    from collplan.executors.mpi.together import abort

    try:
        yield
        return
    except CollplanError:
        raise
    except MemoryError as error:
        text, status = too_large or f"{error}; give smaller --sizes", BAD_INPUT
        text = f"collplan: error: {text}\n"
    except Exception:
        text, status = traceback.format_exc(), 1
    abort(comm, status, text)
    raise typer.Exit(status)


@contextmanager
def one_voice() -> Iterator[None]:
    """Let only rank 0 report a `CollplanError` of all ranks; all ranks exit with one status."""
    from collplan.executors.mpi.launch.environment import launcher_rank

    try:
        yield
    except CollplanError:
        if launcher_rank() > 0:
            raise typer.Exit(BAD_INPUT) from None
        raise
