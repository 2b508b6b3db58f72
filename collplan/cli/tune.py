"""``collplan tune``: measure candidates here, and write which is best for which size."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from collplan.cli.bench.options import Progress
from collplan.cli.bench.ranks import Advance, Document, run_benchmark
from collplan.cli.options import Json
from collplan.cli.own_command import own_command
from collplan.cli.tune_options import Asked

if TYPE_CHECKING:
    from collplan.tune.options import Request
    from collplan.tune.tuner import Progress as OnProgress

_REDRAW_S: Final = 0.2
_SPEED_FROM_S: Final = 600.0
"""Time left is told from so many seconds before: points differ."""


@dataclass(frozen=True, slots=True)
class TuningBenchmark:
    """What is to be tuned: checked input, the same on all ranks."""

    asked: Asked
    request: Request
    shows_progress: bool

    @property
    def n_ranks(self) -> int | None:
        """Return how many ranks it needs, None if any number will do."""
        return self.asked.ranks_to_start()

    @property
    def n_steps(self) -> int:
        """Return 0: how far it is, it shows by itself."""
        return 0

    def measure(self, comm: Any, advance: Advance) -> Document:
        """Tune on the ranks of a communicator; return the same on all."""
        from collplan.tune.tuner import tune

        output = self.asked.output
        assert output is not None
        with _progress_bar(self.shows_progress and comm.rank == 0) as on_progress:
            tuned = tune(
                comm, self.request, output, restart=self.asked.restart, on_progress=on_progress
            )
        return {"tuned": tuned, "correct": not tuned.wrong and not tuned.failures}

    def show(self, document: Document) -> None:
        """Print what was measured, then plot it, which may fail; called on one rank."""
        from collplan.reports.output import print_json
        from collplan.reports.tuning import plot_speedups, print_tuned, to_json

        tuned, asked = document["tuned"], self.asked
        if asked.as_json:
            print_json({"output": asked.output} | to_json(tuned))
        else:
            print_tuned(tuned, str(asked.output))
        if asked.plot is not None:
            plot_speedups(asked.plot, tuned.table)


def command(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC]",
            help="A spec: its machine for predictions and ranks, its collective to tune.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            writable=True,
            metavar="TABLE",
            help="The table to write, as YAML or .json.",
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="RANKS", help="Number of ranks to start."),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...", help="Which collectives; by default the spec's, or all without one."
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="RANKS,...",
            help="On the first so many ranks, node after node; all by default.",
        ),
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(metavar="SIZE,...", help="Bytes of the vector, or of one block."),
    ] = "64B,1KiB,16KiB,256KiB,1MiB",
    datatype: Annotated[
        str | None, typer.Option(help="What is moved; float64 or the spec's by default.")
    ] = None,
    op: Annotated[
        str | None, typer.Option(help="How reductions combine; sum or the spec's by default.")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PRESET",
            help="Predict for this machine, as collplan calibrate writes it; by default the "
            "spec's, or that of the emulated cluster.",
        ),
    ] = None,
    keep_within: Annotated[
        float,
        typer.Option(
            min=1, metavar="FACTOR", help="Measure what is predicted within so many times the best."
        ),
    ] = 1.5,
    at_most: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="Measure no more than so many, the best predicted."
        ),
    ] = None,
    tight: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            help="Repeat until the median's 95 % interval is within this of it, on either side.",
        ),
    ] = "5%",
    least: Annotated[int, typer.Option(min=6, help="Repetitions, at least.")] = 8,
    most: Annotated[int, typer.Option(min=6, help="Repetitions, at most.")] = 100,
    seconds: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="No more repetitions after so long in a row."),
    ] = 10.0,
    give_up: Annotated[
        float,
        typer.Option(
            "--give-up",
            min=1,
            metavar="SECONDS",
            help="A candidate has failed whose call takes longer, and than 20 native calls.",
        ),
    ] = 60.0,
    again: Annotated[
        bool,
        typer.Option("--again", help="Measure anew what is asked for and in the table already."),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Begin anew; replace the whole table when all is measured."),
    ] = False,
    lists: Annotated[
        bool, typer.Option("--list", help="Print the candidates and measure nothing; needs no MPI.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="Stop after this long.")
    ] = None,
    progress: Progress = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Draw speed-ups against sizes into an SVG or PNG file.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure candidates for collectives here; write a table of what is best where.

    Native calls, flat algorithms, hierarchical and full-lane forms, every mesh
    of two and three dimensions, segments. Those the model finds far from the
    best are left out. Native stays unless another is faster beyond noise. A
    run that was stopped goes on where it was; a table that is there is added
    to. Exit status 1 where a candidate's result is wrong, it crashes or does
    not end; then it is left out.
    """
    asked = Asked(
        source=source,
        output=output,
        start=start,
        collectives=collectives,
        ranks=ranks,
        sizes=sizes,
        datatype=datatype,
        op=op,
        machine=machine,
        keep_within=keep_within,
        at_most=at_most,
        tight=tight,
        least=least,
        most=most,
        seconds=seconds,
        give_up=give_up,
        again=again,
        restart=restart,
        plot=plot,
        as_json=as_json,
    )
    if lists:
        return _list(asked)
    return _tune(asked, timeout_s=timeout, progress=progress)


def _list(asked: Asked) -> int:
    from collplan.reports.output import print_json
    from collplan.reports.tuning import candidates_to_json, print_candidates

    specs = asked.specs_to_list()
    if asked.as_json:
        print_json(candidates_to_json(specs))
    else:
        print_candidates(specs)
    return 0


def _tune(asked: Asked, *, timeout_s: float | None, progress: bool | None) -> int:
    from collplan.executors.mpi.launch.jobs import relaunch
    from collplan.executors.mpi.launch.launcher import default_ranks, is_under_mpi
    from collplan.specs.errors import CollplanError
    from collplan.tune.claim import STARTER, end_with_parents, name_starter
    from collplan.tune.crash_log import Attempts, Failure

    # Ranks write into a pipe; whether a terminal is at its end, only this process knows.
    shown = sys.stderr.isatty() if progress is None else progress

    def prepare() -> TuningBenchmark:
        return TuningBenchmark(asked, asked.request(), shown)

    if is_under_mpi():
        end_with_parents()
        return run_benchmark(prepare, [], timeout_s=timeout_s or 0, progress=False)
    n_ranks = prepare().n_ranks or default_ranks()
    if n_ranks is None:
        raise CollplanError("-n: is missing outside mpiexec; say how many ranks to start, as -n 8")
    program = own_command("tune", *asked.arguments())
    program.append("--progress" if shown else "--no-progress")
    os.environ[STARTER] = name_starter()
    assert asked.output is not None, "prepare() refuses that"
    attempts = Attempts(asked.output)
    while True:
        before = attempts.find()
        status = relaunch(program, n_ranks, timeout_s=timeout_s)
        failure = attempts.find()
        # What was there before is of another run: this one may not even have begun.
        if status == 0 or not isinstance(failure, Failure) or failure == before:
            return status
        sys.stderr.write(f"collplan: {failure}; going on without it\n")
        # A second time nothing may be forgotten, or never ends.
        program = [word for word in program if word != "--restart"]


@contextmanager
def _progress_bar(shown: bool) -> Iterator[OnProgress | None]:
    """Yield what moves a bar: drawn then and only then, as a thread would take a core."""
    if not shown:
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True, force_terminal=True)
    with Bar(
        console=console,
        auto_refresh=False,
        transient=True,
        speed_estimate_period=_SPEED_FROM_S,
    ) as bar:
        task = bar.add_task("tuning", total=1.0)
        drawn = time.monotonic()

        def show(what: str, part: float) -> None:
            nonlocal drawn
            bar.update(task, description=what, completed=part)
            if time.monotonic() - drawn >= _REDRAW_S:
                bar.refresh()
                drawn = time.monotonic()

        yield show
