"""Measurements of overlap on the ranks of this job, or on ranks launched for each number."""

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
from collplan.executors.mpi.launch.environment import launch_environment
from collplan.executors.mpi.launch.select import select_launcher
from collplan.planner.machine_code.kept_files import read_kept, write_kept
from collplan.reports.output import Document
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.measure.overlap.sweep import OverlapSweep

Part = Literal["blocking", "methods", "asynchronous"]

VARIABLES: Final = {
    "mpich": "MPIR_CVAR_ASYNC_PROGRESS",
    "intelmpi": "I_MPI_ASYNC_PROGRESS",
}
"""Environment variables that enable asynchronous progress, by family of MPI libraries."""
WITHOUT: Final = {"openmpi": "Open MPI 5.0 makes progress on one node inside its calls only"}
"""Reasons why an MPI library has no such variable, by family."""
_UNBOUND: Final = {"PRTE_MCA_hwloc_default_binding_policy": "none"}
"""Variables that keep Open MPI from binding ranks, as the benchmark binds them itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """A measurement that launched ranks make.

    Parameters
    ----------
    sweep : OverlapSweep
        Sweep with the collective; its first number of ranks is measured.
    part : {"blocking", "methods", "asynchronous"}
        Calls to measure: only the blocking collective; all plans and native calls; or the
        native non-blocking call with asynchronous progress of the library.
    computation_s : float or None
        Time of the computation on all cores, C(N_proc), in seconds.
    repetitions : int
        Number of repetitions without warm-ups.
    """

    sweep: OverlapSweep
    part: Part
    computation_s: float | None
    repetitions: int

    @property
    def n_ranks(self) -> int:
        """Number of ranks that the job needs."""
        return self.sweep.n_cores if self.part == "blocking" else self.sweep.ranks[0]


def rank_benchmark(job: Job, deliver: Callable[[Document], object]) -> Benchmark:
    """Return the benchmark of a job on the ranks of this MPI job; rank 0 calls `deliver`."""
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
        # The environment may already enable asynchronous progress of the library.
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
    """Launch ranks for all parts of a job, and yield each part with its measurements.

    Parameters
    ----------
    job : Job
        Job for all numbers of ranks of its sweep. If its computation time is None, the blocking
        collective is measured first, on one rank per core.
    timeout_s : float
        Time limit of a launch in seconds.
    tell : callable
        Function that is called before each launch with a description of it.

    Raises
    ------
    LaunchError
        If MPI is missing, or a launch exceeds the time limit.
    Exit
        If the ranks fail. They have reported the error, and the exception has their status.
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
    """Launch ranks for a job, and return their measurements."""
    from collplan.executors.mpi.launch.jobs import run_job

    with tempfile.TemporaryDirectory(prefix="collplan-overlap-") as folder:
        path = Path(folder, "job")
        write_kept(path, pickle.dumps(job))
        launcher, n_ranks = select_launcher(), job.n_ranks
        program = own_command("bench", "overlap", "--job", path)
        environment = launcher.environment(n_ranks) | _UNBOUND
        # If cores share processors, ranks share them, too, even if there are few ranks.
        family, n_cores = launcher.library.family, job.sweep.n_cores
        environment |= launch_environment(family, n_cores, are_late=True)
        if variable is not None:
            environment[variable] = str(int(job.part == "asynchronous"))
        done = run_job(launcher.command(n_ranks, program), environment, timeout_s)
        result = read_kept(_result_path(path))
        if result is None:
            raise typer.Exit(done.returncode or 1)
        document: Document = pickle.loads(result)
        return document


def job_benchmark(path: Path) -> Benchmark:
    """Return the benchmark of the job in a file, which a launched rank reads."""
    result, content = _result_path(path), read_kept(path)
    if content is None:
        raise CollplanError(f"--job: {path} is not a job that this user has written")
    job: Job = pickle.loads(content)
    return rank_benchmark(job, lambda document: write_kept(result, pickle.dumps(document)))


def _result_path(path: Path) -> Path:
    return path.with_suffix(".result")
