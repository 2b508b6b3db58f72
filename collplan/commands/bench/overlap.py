"""``collplan bench overlap``: how much of a collective hides behind computation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from collplan.commands.bench.options import Progress, Repetitions, Timeout
from collplan.commands.bench.overlap_jobs import (
    ASYNCHRONOUS,
    WITHOUT,
    Job,
    RankBenchmark,
    job_benchmark,
    launch_all,
)
from collplan.commands.bench.overlap_report import Report
from collplan.commands.bench.ranks import Document, run_benchmark
from collplan.options import Json

if TYPE_CHECKING:
    from executors.overlap.methods import Sweep
    from specs import Machine

T = TypeVar("T")


def command(
    collective: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="bcast, reduce, gather, scatter, allreduce, scan or exscan."
        ),
    ] = "reduce",
    cores: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="CORES", help="Cores of the node; as many as processors by default."
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--ranks",
            metavar="RANKS,...",
            help="Numbers of ranks, each below the cores; the others make communication progress.",
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="S,...", help="Levels of the tree on the ranks' own cores; 0 to 3 by default."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY,...", help="For chains: bind, numa, odd_even; all by default."
        ),
    ] = None,
    n_bytes: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="Bytes of MPI's count.")
    ] = "2MiB",
    computation: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="What the computation takes on all cores; by default as long as the blocking "
            "collective there.",
        ),
    ] = None,
    transport: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How ranks pass data: shared or messages; by default shared for reduce and "
            "chains, where that leaves them what they are.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="A preset or machine file: its cores, NUMA domains, and network to simulate.",
        ),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Price the sweep on the simulator; needs no MPI.")
    ] = False,
    repetitions: Repetitions = 20,
    timeout: Timeout = 600,
    progress: Progress = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw times against ranks into an SVG or PNG file."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what every core did: FILE.json for Perfetto, FILE.paje for Pajé.",
        ),
    ] = None,
    job: Annotated[Path | None, typer.Option(hidden=True)] = None,
    as_json: Json = False,
) -> int:
    """Time a collective, computation, and both at once, on fewer ranks than cores.

    The total work is fixed: on all cores, computation takes as long as the
    blocking collective, on fewer ranks longer. The cores without ranks make
    communication progress. For each number of ranks, and each number S of
    levels that stay on the ranks' own cores, or each placement policy of a
    chain; beside the native call, blocking, non-blocking, and with the
    library's own asynchronous progress.
    """
    if job is not None:
        return run_benchmark(partial(job_benchmark, job), [], timeout_s=timeout, progress=progress)
    prepare = partial(
        _prepare,
        collective=collective,
        cores=cores,
        ranks=ranks,
        levels=levels,
        policy=policy,
        n_bytes=n_bytes,
        transport=transport,
        machine=machine,
        plot=plot,
        trace=trace,
    )
    if simulate:
        return _simulate(Report(prepare(), None, plot, trace, as_json), computation)
    from executors.mpi.launch import is_under_mpi

    def report() -> Report:
        return Report(prepare(), repetitions, plot, trace, as_json)

    if is_under_mpi():
        return run_benchmark(
            partial(_on_these_ranks, report, computation, repetitions),
            [],
            timeout_s=timeout,
            progress=progress,
        )
    return _launch(report(), computation, repetitions, timeout, progress)


def _prepare(
    *,
    collective: str,
    cores: int | None,
    ranks: str | None,
    levels: str | None,
    policy: str | None,
    n_bytes: str,
    transport: str | None,
    machine: str | None,
    plot: Path | None,
    trace: Path | None,
) -> Sweep:
    """Read what the options say.

    Raises
    ------
    CollplanError
        If they don't make sense, alone or together.
    """
    from collplan.plots import check_plot_path
    from executors.cost.traces import check_trace_path
    from executors.overlap.choosing import plan_sweep
    from specs import parse_bytes
    from specs.errors import CollplanError
    from specs.transport import TRANSPORTS

    n_here, n_processors = _surroundings()
    if plot is not None:
        check_plot_path(plot)
    if trace is not None:
        check_trace_path(trace)
    if transport not in (None, *TRANSPORTS):
        raise CollplanError(
            f"--transport: {transport!r} is no transport; use {' or '.join(TRANSPORTS)}"
        )
    try:
        size = parse_bytes(n_bytes)
    except ValueError as error:
        raise CollplanError(f"--bytes: {error}") from None
    asked = _split("--ranks", ranks, _number)
    if n_here is not None:
        if asked not in (None, [n_here]):
            raise CollplanError(
                f"--ranks: {ranks}, but mpiexec has started {n_here}; leave --ranks out"
            )
        asked = [n_here]
    return plan_sweep(
        collective,
        size,
        _machine(machine, cores, n_processors),
        asked,
        _split("--levels", levels, _number),
        _split("--policy", policy, _text),
        transport,
    )


def _surroundings() -> tuple[int | None, int]:
    """Return how many ranks there are, None outside mpiexec, and processors; collective."""
    from executors.mpi.launch import is_under_mpi, n_cores

    if not is_under_mpi():
        return None, n_cores()
    from executors.mpi.pinning import usable_processors
    from executors.mpi.world import join_world

    comm = join_world()
    return comm.size, len(usable_processors(comm))


def _machine(source: str | None, cores: int | None, n_processors: int) -> Machine:
    from pydantic import ValidationError

    from specs import Machine
    from specs.errors import CollplanError
    from specs.loading import explain, load_machine

    try:
        if source is None:
            return Machine(cores=n_processors if cores is None else cores)
        machine = load_machine(source)
        return machine if cores is None else machine.replace(nodes=1, ranks_per_node=1, cores=cores)
    except ValidationError as error:
        raise CollplanError(f"--cores: {explain(error)}") from None


def _split(option: str, text: str | None, read: Callable[[str, str], T]) -> list[T] | None:
    """Return the parts of an option's list, None where it was not given."""
    return None if text is None else [read(option, part.strip()) for part in text.split(",")]


def _number(option: str, text: str) -> int:
    from specs.errors import CollplanError

    if not (text.isascii() and text.isdecimal()):
        raise CollplanError(f"{option}: {text!r} is not a whole number; give them as 1,2,3")
    return int(text)


def _text(option: str, text: str) -> str:
    return text


def _simulate(report: Report, computation_s: float | None) -> int:
    from collplan.output import show_progress
    from executors.overlap.simulated import blocking_s, simulate_sweep

    with show_progress("simulating"):
        blocking = blocking_s(report.sweep)
        on_all_cores_s = blocking if computation_s is None else computation_s
        found = list(simulate_sweep(report.sweep, on_all_cores_s))
    report.show(
        {
            "blocking_s": blocking,
            "computation_s": on_all_cores_s,
            "rows": [row for row, _ in found],
        },
        [states for _, states in found if states is not None],
    )
    return 0


def _on_these_ranks(
    make: Callable[[], Report], computation_s: float | None, repetitions: int
) -> RankBenchmark:
    """Return the benchmark for the ranks that mpiexec has started."""
    report = make()
    if computation_s is None:
        report.sweep.blocking_ratio(report.sweep.ranks[0])  # raises where there is none
    job = Job(report.sweep, "methods", computation_s, repetitions)
    return RankBenchmark(job, lambda document: _show(report, [("methods", document)], None))


def _launch(
    report: Report,
    computation_s: float | None,
    repetitions: int,
    timeout_s: float,
    progress: bool | None,
) -> int:
    from executors.mpi.launch import find_launcher

    job = Job(report.sweep, "methods", computation_s, repetitions)
    shown = sys.stderr.isatty() if progress is None else progress
    tell = _say if shown else _keep_quiet
    parts = list(launch_all(job, timeout_s=timeout_s, tell=tell))
    return _show(report, parts, find_launcher().library.family)


def _say(text: str) -> None:
    sys.stderr.write(f"measuring {text}\n")


def _keep_quiet(text: str) -> None:
    pass


def _show(report: Report, parts: list[tuple[Any, Document]], family: str | None) -> int:
    """Put together what launches measured; return the exit status."""
    from executors.cost.traces.states import CoreStates

    documents = [document for part, document in parts if part != "blocking"]
    blocking = [document["blocking_s"] for part, document in parts if part == "blocking"]
    wrong = [text for document in documents for text in document["wrong"]]
    n_processors = max(document["processors"] for document in documents)
    variable = ASYNCHRONOUS.get(family or "")
    report.show(
        {
            "library": documents[0]["library"],
            "processors": n_processors,
            "is_mapped": n_processors < report.sweep.n_cores,
            "blocking_s": blocking[0] if blocking else None,
            "computation_s": documents[0]["computation_s"],
            "asynchronous": None if variable is None else f"{variable}=1",
            "why_not_asynchronous": WITHOUT.get(family or ""),
            "rows": [row for document in documents for row in document["rows"]],
            "correct": not wrong,
            "wrong": wrong,
        },
        [CoreStates.from_json(states) for document in documents for states in document["states"]],
    )
    return 1 if wrong else 0
