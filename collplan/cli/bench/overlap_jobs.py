"""Measure overlap on ranks: those that are there, or for every number of ranks a launch."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from collplan.cli.ranks import Advance, Benchmark, count_repetitions, own_command
from collplan.executors.mpi.launch.launcher import launch_environment
from collplan.executors.mpi.launch.select import select_launcher
from collplan.reports.output import Document

if TYPE_CHECKING:
    from collplan.measure.overlap.sweep import Sweep

Part = Literal["blocking", "methods", "asynchronous"]

VARIABLES: Final = {
    "mpich": "MPIR_CVAR_ASYNC_PROGRESS",
    "intelmpi": "I_MPI_ASYNC_PROGRESS",
}
"""Environment variables that let an MPI make progress by itself, by family."""
WITHOUT: Final = {"openmpi": "Open MPI 5.0 makes progress on one node inside its calls only"}
"""MPIs without such a variable, with the reason."""
_UNBOUND: Final = {"PRTE_MCA_hwloc_default_binding_policy": "none"}
"""Open MPI would bind ranks to cores; the benchmark places them itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """The task of the ranks in a measurement.

    Parameters
    ----------
    sweep : Sweep
        The collective; of its numbers of ranks, the first.
    part : {"blocking", "methods", "asynchronous"}
        The blocking collective alone; all plans and native calls; or the native
        non-blocking call while the library makes progress by itself.
    computation_s : float, optional
        C(N_proc).
    repetitions : int
        How many to count.
    """

    sweep: Sweep
    part: Part
    computation_s: float | None
    repetitions: int

    @property
    def n_ranks(self) -> int:
        """Return how many ranks it needs."""
        return self.sweep.n_cores if self.part == "blocking" else self.sweep.ranks[0]


def rank_benchmark(job: Job, deliver: Callable[[Document], object]) -> Benchmark:
    """Return a job on the ranks that are there; rank 0 delivers what was measured."""
    n_timed = 2 if job.part == "methods" and job.computation_s is None else 1
    count_steps = partial(count_repetitions, n_timed, job.repetitions)
    return Benchmark(partial(_measure, job), deliver, job.n_ranks, count_steps)


def _measure(job: Job, comm: Any, advance: Advance) -> Document:
    from collplan.measure.overlap.sweep import ASYNCHRONOUS, NATIVE
    from collplan.measure.overlap.timing import measure_blocking, measure_overlap
    from collplan.measure.timing import library_name

    library = {"library": library_name()}
    if job.part == "blocking":
        seconds = measure_blocking(comm, job.sweep, job.repetitions, advance)
        return library | {"blocking_s": seconds}
    methods = [ASYNCHRONOUS]
    if job.part == "methods":
        # Whoever started us may let the library make progress by itself.
        is_own = any(os.environ.get(name, "0") not in ("", "0") for name in VARIABLES.values())
        native = (NATIVE[0], ASYNCHRONOUS if is_own else NATIVE[1])
        methods = [*job.sweep.methods(job.sweep.ranks[0]), *native]
    return library | measure_overlap(
        comm,
        job.sweep,
        methods,
        on_all_cores_s=job.computation_s,
        repetitions=job.repetitions,
        advance=advance,
    )


def launch_all(
    job: Job, *, timeout_s: float, tell: Callable[[str], object]
) -> Iterator[tuple[Part, Document]]:
    """Generate what the ranks of every launch measured.

    Parameters
    ----------
    job : Job
        For all its sweep's numbers of ranks; without a computation, the blocking
        collective is measured first, on as many ranks as there are cores.
    timeout_s : float
        When the ranks of a launch are given up.
    tell : callable
        Called before each launch with what it is.

    Raises
    ------
    LaunchError
        If MPI is missing, or ranks take too long.
    Exit
        With the ranks' status, where they failed and have said why.
    """
    family = select_launcher().library.family
    variable = VARIABLES.get(family)
    if job.computation_s is None:
        tell(f"blocking {job.sweep.kind} on {job.sweep.n_cores} ranks")
        document = _launch(replace(job, part="blocking"), variable, timeout_s)
        yield "blocking", document
        job = replace(job, computation_s=document["blocking_s"])
    for n_ranks in job.sweep.ranks:
        single = replace(job, sweep=replace(job.sweep, ranks=(n_ranks,)))
        parts: list[Part] = ["methods"] if variable is None else ["methods", "asynchronous"]
        for part in parts:
            manner = ", the library making progress" if part == "asynchronous" else ""
            tell(f"{job.sweep.kind} on {n_ranks} ranks{manner}")
            yield part, _launch(replace(single, part=part), variable, timeout_s)


def _launch(job: Job, variable: str | None, timeout_s: float) -> Document:
    """Run a job on ranks started for it, and return what they measured."""
    from collplan.executors.mpi.launch.jobs import run_job

    with tempfile.TemporaryDirectory(prefix="collplan-overlap-") as folder:
        path = Path(folder, "job")
        path.write_bytes(pickle.dumps(job))
        launcher, n_ranks = select_launcher(), job.n_ranks
        program = own_command("bench", "overlap", "--job", path)
        environment = launcher.environment(n_ranks) | _UNBOUND
        # Where cores share processors, ranks do, however few they are.
        environment |= launch_environment(launcher.library.family, job.sweep.n_cores)
        if variable is not None:
            environment[variable] = str(int(job.part == "asynchronous"))
        done = run_job(launcher.command(n_ranks, program), environment, timeout_s)
        result = _result_path(path)
        if not result.exists():
            raise typer.Exit(done.returncode or 1)
        document: Document = pickle.loads(result.read_bytes())
        return document


def job_benchmark(path: Path) -> Benchmark:
    """Return the benchmark that a launched rank finds in its job's file."""
    result = _result_path(path)
    job: Job = pickle.loads(path.read_bytes())
    return rank_benchmark(job, lambda document: result.write_bytes(pickle.dumps(document)))


def _result_path(path: Path) -> Path:
    return path.with_suffix(".result")
