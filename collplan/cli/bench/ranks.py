"""Start a benchmark on ranks, and run it as one of them."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol

import typer

from collplan.cli.own_command import own_command
from collplan.specs.errors import CollplanError

Advance = Callable[[], None]
Document = dict[str, Any]
_BAD_INPUT: Final = 2
_REDRAW_S: Final = 0.2


class Benchmark(Protocol):
    """What is to be measured: checked input, the same on all ranks."""

    @property
    def n_ranks(self) -> int | None:
        """Return how many ranks it needs, None if any number will do."""

    @property
    def n_steps(self) -> int:
        """Return how often `measure` says that it has advanced."""

    def measure(self, comm: Any, advance: Advance) -> Document:
        """Measure on the ranks of a communicator; return the same on all."""

    def show(self, document: Document) -> None:
        """Print what was measured, then plot it, which may fail; called on one rank."""


def run_benchmark(
    prepare: Callable[[], Benchmark],
    arguments: Sequence[object],
    *,
    timeout_s: float,
    progress: bool | None,
) -> int:
    """Run a benchmark: on the ranks that are there, or on ranks started for it.

    Parameters
    ----------
    prepare : callable
        Reads the input; called here before ranks are started, and on each rank.
    arguments : sequence
        What says the same input behind ``collplan bench``.
    timeout_s : float
        When started ranks are given up.
    progress : bool, optional
        Whether to show progress; by default where standard error is a terminal.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong.

    Raises
    ------
    CollplanError
        If the input is bad, here or on a rank.
    """
    from collplan.executors.mpi.launch.jobs import relaunch
    from collplan.executors.mpi.launch.launcher import is_under_mpi

    shown = sys.stderr.isatty() if progress is None else progress
    if is_under_mpi():
        with _one_voice():
            return _run_as_rank(prepare, shown)
    n_ranks = prepare().n_ranks
    if n_ranks is None:
        raise CollplanError("-n: is missing outside mpiexec; say how many ranks to start, as -n 8")
    program = own_command("bench", *arguments)
    # Ranks write into a pipe; whether a terminal is at its end, only this process knows.
    program.append("--progress" if shown else "--no-progress")
    return relaunch(program, n_ranks, timeout_s=timeout_s)


def _run_as_rank(prepare: Callable[[], Benchmark], shows_progress: bool) -> int:
    from collplan.executors.mpi.together import together
    from collplan.executors.mpi.world import join_world

    comm: Any = join_world()
    try:
        benchmark = together(comm, prepare)
        join_world(benchmark.n_ranks)
        with _progress_bar(benchmark.n_steps, shows_progress and comm.rank == 0) as advance:
            document = benchmark.measure(comm, advance)
    except CollplanError:
        raise
    except MemoryError as error:
        _end_all(comm, f"collplan: error: {error}; give smaller --sizes\n", _BAD_INPUT)
    except Exception:
        _end_all(comm, traceback.format_exc(), 1)
    if comm.rank == 0:
        benchmark.show(document)
    return 0 if document.get("correct", True) else 1


def _end_all(comm: Any, reason: str, status: int) -> NoReturn:
    """End all ranks where one cannot go on: the others would wait for it."""
    from collplan.executors.mpi.together import abort

    abort(comm, status, reason)
    raise typer.Exit(status)


@contextmanager
def _one_voice() -> Iterator[None]:
    """Let rank 0 alone say what is wrong for all ranks; the others end with the same status."""
    from collplan.executors.mpi.launch.launcher import launcher_rank

    try:
        yield
    except CollplanError:
        if launcher_rank() > 0:
            raise typer.Exit(_BAD_INPUT) from None
        raise


@contextmanager
def _progress_bar(n_steps: int, shown: bool) -> Iterator[Advance]:
    """Yield what advances a bar: drawn then and only then, as a thread would take a core."""
    if not shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, force_terminal=True)
    with Progress(console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("measuring", total=n_steps)
        drawn = time.monotonic()

        def advance() -> None:
            nonlocal drawn
            bar.advance(task)
            if time.monotonic() - drawn >= _REDRAW_S:
                bar.refresh()
                drawn = time.monotonic()

        yield advance
