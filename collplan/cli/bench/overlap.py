"""``collplan bench overlap``: how much of a collective hides behind computation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collplan.cli.bench.options import Progress, Repetitions, Timeout
from collplan.cli.bench.overlap_jobs import (
    ASYNCHRONOUS,
    WITHOUT,
    Job,
    RankBenchmark,
    job_benchmark,
    launch_all,
)
from collplan.cli.bench.overlap_options import (
    Asked,
    Cores,
    Kind,
    Levels,
    MachineName,
    PlotFile,
    Policies,
    RankNumbers,
    Seconds,
    Simulate,
    Size,
    TraceFile,
    TransportName,
)
from collplan.cli.bench.overlap_report import Report
from collplan.cli.bench.ranks import Document, run_benchmark
from collplan.cli.options import Json


def command(
    collective: Kind = "reduce",
    cores: Cores = None,
    ranks: RankNumbers = None,
    levels: Levels = None,
    policy: Policies = None,
    n_bytes: Size = "2MiB",
    computation: Seconds = None,
    transport: TransportName = None,
    machine: MachineName = None,
    simulate: Simulate = False,
    repetitions: Repetitions = 20,
    timeout: Timeout = 600,
    progress: Progress = None,
    plot: PlotFile = None,
    trace: TraceFile = None,
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
    from collplan.executors.mpi.launch.launcher import is_under_mpi, n_cores

    run = partial(run_benchmark, timeout_s=timeout, progress=progress)
    if job is not None:
        return run(partial(job_benchmark, job), [])
    asked = Asked(
        collective, cores, ranks, levels, policy, n_bytes, transport, machine, plot, trace
    )
    if simulate:
        return _simulate(Report(asked.sweep(n_cores()), None, plot, trace, as_json), computation)
    if is_under_mpi():

        def report() -> Report:
            n_ranks, n_processors = _surroundings()
            sweep = asked.sweep(n_processors, n_ranks)
            return Report(sweep, repetitions, plot, trace, as_json)

        return run(partial(_on_these_ranks, report, computation, repetitions), [])
    report_of_all = Report(asked.sweep(n_cores()), repetitions, plot, trace, as_json)
    return _launch(report_of_all, computation, repetitions, timeout, progress)


def _surroundings() -> tuple[int, int]:
    """Return how many ranks there are, and processors; collective."""
    from collplan.executors.mpi.host.cores import usable_processors
    from collplan.executors.mpi.world import join_world

    comm = join_world()
    return comm.size, len(usable_processors(comm))


def _simulate(report: Report, computation_s: float | None) -> int:
    from collplan.measure.overlap.simulation import blocking_s, simulate_sweep
    from collplan.reports.output import show_progress

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
    from collplan.executors.mpi.launch.launcher import find_launcher

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
    from collplan.executors.cost.traces.states import CoreStates

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
