"""Commands on ranks: started for them, or run as one of them, with one voice."""

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
    """Keep the command's arguments, for ranks that are started to run the same."""
    _arguments[:] = arguments


def own_command(*arguments: object) -> list[str]:
    """Return the command line that runs this very collplan with `arguments`.

    It names a file by its path, and ``-P`` keeps Python from searching the working
    folder. Nothing that lies where the user stands is imported, except the files that
    ``--import`` names.
    """
    from collplan.own_algorithms import own_files

    # Launchers of other nodes may not pass on the environment that names these files, too.
    imports = [word for path in own_files() for word in ("--import", path)]
    start = Path(__file__).parents[1] / "__main__.py"
    return [sys.executable, "-P", str(start), *imports, *map(str, arguments)]


def let_share(cores: Sequence[int] | None) -> None:
    """Set what the MPI library needs where ranks may share a processor, however few they are."""
    from collplan.executors.mpi.launch.launcher import launch_environment
    from collplan.executors.mpi.launch.select import select_launcher

    if cores is not None and len(set(cores)) < len(cores):
        family = select_launcher().library.family
        os.environ.update(launch_environment(family, (os.cpu_count() or 1) + 1))


def run_again(
    n_ranks: int,
    timeout_s: float | None,
    *,
    shown: bool = False,
    but: Sequence[str] = (),
    reads_input: bool = False,
) -> int:
    """Run this command once more, as `n_ranks` ranks with the same arguments.

    Parameters
    ----------
    n_ranks : int
    timeout_s : float, optional
        When to stop them.
    shown : bool
        Whether they show progress.
    but : sequence of str
        Flags to leave out.
    reads_input : bool
        Whether rank 0 gets this process's standard input.

    Returns
    -------
    int
        The ranks' exit status.
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
    """A measurement to make: checked input, the same on all ranks.

    Parameters
    ----------
    measure : callable
        Measures on the ranks of a communicator, and calls its second argument whenever it
        advances; returns the same on all.
    show : callable
        Prints what was measured, then plots it, which may fail; called on one rank.
    n_ranks : int, optional
        How many ranks it needs, None if any number will do.
    n_steps : callable
        Returns how often `measure` advances; called on ranks.
    """

    measure: Callable[[Any, Advance], Document]
    show: Callable[[Document], object]
    n_ranks: int | None
    n_steps: Callable[[], int]


def count_repetitions(n_series: int, repetitions: int) -> int:
    """Return the number of repetitions in some series, warm-ups included."""
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
    """Run a benchmark: on the ranks that are there, or on ranks started for it.

    Parameters
    ----------
    prepare : callable
        Reads what options say; called here before ranks are started, and on each rank.
    timeout_s : float, optional
        When started ranks are given up.
    progress : bool, optional
        Whether to show progress; by default where standard error is a terminal.
    default : callable
        Number of ranks to start where the input does not say it, if there is one.
    example : int
        Number of ranks that the error names if there is none.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong.

    Raises
    ------
    CollplanError
        If the input is bad, here or on a rank.
    """
    from collplan.executors.mpi.launch.launcher import is_under_mpi

    shown = shows_progress(progress)
    if is_under_mpi():
        with one_voice():
            return _run_as_rank(prepare, shown)
    n_ranks = ranks_to_start(prepare().n_ranks or default(), example)
    return run_again(n_ranks, timeout_s, shown=shown)


def ranks_to_start(n_ranks: int | None, example: int) -> int:
    """Return how many ranks to start; raise `CollplanError` if nobody says it."""
    if n_ranks is None:
        raise CollplanError(
            f"-n: is missing outside mpiexec; say how many ranks to start, as -n {example}"
        )
    return n_ranks


def _run_as_rank(prepare: Callable[[], Benchmark], is_shown: bool) -> int:
    from collplan.executors.mpi.together import together
    from collplan.executors.mpi.world import join_world

    comm: Any = join_world()
    with ending_all(comm):
        benchmark = together(comm, prepare)
        join_world(benchmark.n_ranks)
        with progress_bar("measuring", benchmark.n_steps(), is_shown and comm.rank == 0) as update:
            document = benchmark.measure(comm, partial(update, advance=1))
    if comm.rank == 0:
        benchmark.show(document)
    return 0 if document.get("correct", True) else 1


@contextmanager
def ending_all(comm: Any, too_large: str | None = None) -> Iterator[None]:
    """End all ranks where one cannot go on: the others would wait for it.

    Parameters
    ----------
    comm : MPI.Intracomm
    too_large : str, optional
        What to say where memory does not suffice.
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
    """Let rank 0 alone say what is wrong for all ranks; the others end with the same status."""
    from collplan.executors.mpi.launch.launcher import launcher_rank

    try:
        yield
    except CollplanError:
        if launcher_rank() > 0:
            raise typer.Exit(BAD_INPUT) from None
        raise
