"""``collplan run``: run of a plan under MPI, with a check of its results and times."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.api.sources import is_plan_file
from collplan.cli.inputs import (
    open_request,
    open_source,
    prove_file,
    resolve_noting,
)
from collplan.cli.options import (
    Json,
    Options,
    SpecOrPlan,
    flag,
    launcher,
    n_ranks,
    option,
    output_file,
    parse_processors,
    trace_file,
)
from collplan.cli.ranks import ending_all, let_share, one_voice, run_again
from collplan.executors.mpi.together import first_alone
from collplan.planner.memory import TOO_LARGE
from collplan.reports.measured import (
    prediction_report,
    print_program_run,
    print_run,
    write_both,
)
from collplan.reports.output import Document, print_line, print_result, require_folder, warn
from collplan.reports.progress import progress_bar, shows_progress, spinner
from collplan.specs import CollplanError, PlanSpec

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline
    from collplan.measure.task_times import TaskTimes
    from collplan.planner.plan.plan import Plan

    Recorded = tuple[Timeline, TaskTimes]

_INDEX_BYTES: Final = 8
"""Size of the index of an element of a result, in bytes."""


class RunOptions(Options):
    """Options of ``collplan run``."""

    source: SpecOrPlan
    ranks: int | None = n_ranks(
        "Number of ranks. Must be the plan's own; a spec of one node is planned for "
        "this many ranks instead."
    )
    repetitions: int = option(None, "Timed runs, interleaved with native ones.", default=20, min=1)
    check: bool = option(
        None, "Compare the results with numpy's.", "--check/--no-check", default=True
    )
    timeout: float = option(
        "SECONDS",
        "Give up after this time. If a plan makes no progress for half of it, the ranks "
        "report what they wait for.",
        default=600,
        min=1,
    )
    cores: str | None = option(
        "P,...",
        "Processor of each core of a node: ranks and their progress threads are bound "
        "to it. Cores may share processors.",
    )
    predict: bool = flag("--predict", "Also record every task; compare with the machine's model.")
    trace: Path | None = trace_file("Write recorded and simulated tasks")
    record: Path | None = output_file(
        "Write what --predict finds, for 'collplan report --measured'."
    )
    html: Path | None = output_file("Write the run beside its prediction for a browser.")
    oversubscribe: bool = flag("--oversubscribe", "Allow more than 8 ranks per core.")
    launcher: str | None = launcher()
    as_json: Json = False

    @property
    def places(self) -> tuple[int, ...] | None:
        """Processors of the cores of a node, or None; `CollplanError` is raised if invalid."""
        return parse_processors(self.cores)

    @property
    def _files(self) -> tuple[tuple[str, Path | None], ...]:
        return (("--trace", self.trace), ("--record", self.record), ("--html", self.html))

    def check_files(self) -> None:
        """Raise `CollplanError` if a file of recorded tasks cannot be written."""
        for name, path in self._files:
            if path is not None and not self.predict:
                raise CollplanError(f"{name}: shows what --predict finds; add --predict")
            if path is not None:
                require_folder(name, path)


def command(options: RunOptions) -> int:
    """Run a plan under MPI; check it against numpy, time it against the native collective.

    A plan file of up to 100,000 tasks is proved first. The command starts the
    right mpiexec; under mpiexec it runs as a rank. The slowest rank of each
    repetition counts. Exit status 1 if a result is wrong.
    """
    from collplan.api.compiling import compile_spec
    from collplan.executors.mpi.launch.environment import is_under_mpi, usable_cores
    from collplan.executors.mpi.launch.jobs import check_crowd, check_room, compiling_ahead
    from collplan.planner.plan.plan import Plan

    places = options.places
    if is_under_mpi():
        return _run_as_rank(options)
    # Check the input before any rank is started, so that errors are reported once.
    options.check_files()
    wanted = open_source(options.source, options.ranks)
    if not options.oversubscribe:
        n_wanted = wanted.n_ranks if isinstance(wanted, Plan) else wanted.machine.n_ranks
        check_crowd(n_wanted, usable_cores())
    if isinstance(wanted, Plan):
        plan = wanted
    else:
        chosen = resolve_noting(wanted)
        with spinner("compiling the plan"):
            plan = compile_spec(chosen, idle=[])
    check_program(options, plan)
    check_room(plan.n_ranks, _buffer_bytes(plan))
    prove_file(plan, options.source)
    check_cores(plan, places)
    let_share(places)
    with compiling_ahead():
        return run_again(plan.n_ranks, options.timeout, shown=shows_progress())


def _run_as_rank(options: RunOptions) -> int:
    """Run the plan on the ranks of this MPI job; only rank 0 prints."""
    from collplan.executors.mpi.world import join_world
    from collplan.measure.timing import WARM_UPS

    with one_voice():
        options.check_files()
        comm: Any = join_world()
        is_shown = comm.rank == 0 and shows_progress()
        with (
            ending_all(comm, TOO_LARGE),
            progress_bar("preparing", WARM_UPS + options.repetitions, is_shown) as update,
        ):
            document, recorded = _measure(comm, options, update)
    if comm.rank == 0:
        _show(options, document, recorded)
    return 1 if document["correct"] is False else 0


def _show(options: RunOptions, document: Document, recorded: Recorded | None) -> None:
    """Print the results, then write files; this order keeps the results if writing fails."""
    if document.get("why_caller") is not None:
        sys.stderr.write(
            "collplan: warning: communication cores are not used, callers run background tasks: "
            f"{document['why_caller'].replace('bind(cores=[...])', '--cores P,...')}\n"
        )
    shown = print_program_run if "steps_median_s" in document else print_run
    print_result(document, shown, as_json=options.as_json)
    for path in () if recorded is None else _write(options, document, *recorded):
        if not options.as_json:
            print_line(f"wrote {path}")


def _write(
    options: RunOptions, document: Document, timeline: Timeline, times: TaskTimes
) -> Iterator[Path]:
    """Write the requested files of recorded tasks, and yield the path of each file."""
    from collplan.reports.recording import recording_of, write_recording

    if options.trace is not None:
        write_both(options.trace, timeline, times)
        yield options.trace
    recording = recording_of(document, timeline, times)
    if options.record is not None:
        write_recording(options.record, recording)
        yield options.record
    if options.html is not None:
        from collplan.reports.html.run_page import write_run
        from collplan.tables.fingerprint import cpu_model

        write_run(options.html, recording, str(options.source), cpu_model())
        yield options.html


def _measure(
    comm: Any, options: RunOptions, update: Callable[..., None]
) -> tuple[Document, Recorded | None]:
    """Run the plan on a communicator, and show progress.

    Return the report and, with ``--predict``, the simulated and recorded tasks on rank 0.
    """
    # Imported late, because these modules cannot be imported without mpi4py.
    from collplan.executors.mpi.host.cores import ranks_per_core
    from collplan.executors.mpi.world import join_world
    from collplan.measure.run import run_plan
    from collplan.measure.task_times import record_plan

    plan, timeline = _agree_on_plan(comm, options)
    join_world(plan.n_ranks)
    go_to_core(comm, plan, options.places)
    repetitions, stall_s = options.repetitions, options.timeout / 2
    how: dict[str, Any] = {
        "repetitions": repetitions,
        "check": options.check,
        "timeout_s": stall_s,
        "cores": options.places,
        "advance": partial(update, advance=1, description="running"),
    }
    if plan.program is not None:
        check_program(options, plan)
        return _run_program(comm, options, plan, how), None
    document = asdict(run_plan(plan, comm, **how))
    document["ranks_per_core"] = ranks_per_core(comm)
    if not options.predict:
        return document, None
    update(description="recording")
    times = record_plan(plan, comm, repetitions=repetitions, timeout_s=stall_s)
    if times is None or timeline is None:
        return document, None
    document |= prediction_report(timeline, times)
    for name in ("trace", "record", "html"):
        if getattr(options, name) is not None:
            document[name] = str(getattr(options, name))
    return document, (timeline, times)


def _run_program(comm: Any, options: RunOptions, plan: Plan, how: dict[str, Any]) -> Document:
    """Run a program and its steps, and return the report."""
    from collplan.executors.mpi.stall.timed_collectives import RollCall
    from collplan.measure.program_run import run_program
    from collplan.select.joint import steps_apart

    def find() -> Any:
        """Return the steps with the best method for each alone, on rank 0."""
        if comm.rank > 0:
            return None
        given = None if is_plan_file(options.source) else open_request(options.source)
        stated = plan.program if given is None or isinstance(given, PlanSpec) else given
        assert stated is not None
        return steps_apart(stated)

    call = RollCall(comm, None, "choose methods")
    apart = comm.bcast(call.together(lambda: first_alone(comm, find)))
    return asdict(run_program(plan, apart, comm, **how))


def _agree_on_plan(comm: Any, options: RunOptions) -> tuple[Plan, Timeline | None]:
    """Return the plan of this rank, and on rank 0 a simulation if one is requested; collective.

    If a rank fails, all ranks raise the error. If a prediction is requested, rank 0 gets the
    plan of all ranks and simulates it while the other ranks sleep.
    """
    from collplan.executors.mpi.launch.environment import EXPECTED_RANKS
    from collplan.executors.mpi.stall.timed_collectives import RollCall
    from collplan.planner.plan.plan import Plan
    from collplan.programs.compiling_together import compile_together

    def examine(plan: Plan) -> Timeline | None:
        if comm.rank > 0:
            return None
        # A plan is already proved if `command` has started this rank.
        if EXPECTED_RANKS not in os.environ:
            prove_file(plan, options.source)
        if not options.predict or plan.spec is None:
            return None
        from collplan.executors.cost import simulate

        return simulate(plan)

    idle: list[str] = []
    call = RollCall(comm, None, "read the plan")
    source = call.together(lambda: open_source(options.source, options.ranks))
    try:
        if isinstance(source, Plan):
            plan = source
        else:
            plan = compile_together(source, comm, idle, is_whole=options.predict)
        timeline = call.together(lambda: first_alone(comm, lambda: examine(plan)))
    except MemoryError:
        raise CollplanError(TOO_LARGE) from None
    for line in idle if comm.rank == 0 else ():
        warn(line)
    return plan, timeline


def check_program(options: RunOptions, plan: Plan) -> None:
    """Raise `CollplanError` if the tasks of a program are to be recorded."""
    if plan.program is not None and options.predict:
        raise CollplanError(
            f"--predict: {options.source} is a program, whose tasks are not recorded; leave it "
            "out, and see 'collplan cost' for the model's times"
        )


def _buffer_bytes(plan: Plan) -> int:
    """Return the size of the buffers of all ranks in bytes.

    There are three receive buffers per rank: for the plan, for the native collective, and for
    the correct result.
    """
    sent, received, scratch = plan.buffer_sizes.sum(axis=0).tolist()
    shared = int(plan.shared_sizes.sum())
    n_bytes = int(plan.itemsize * (sent + 3 * received + scratch + shared))
    if plan.spec is not None and plan.spec.collective.regular is not None:
        n_bytes += _INDEX_BYTES * received  # indices of the elements outside gaps
    return n_bytes


def check_cores(plan: Plan, cores: Sequence[int] | None) -> None:
    """Raise `CollplanError` if a node of the plan has more cores than `cores` has processors."""
    if cores is None:
        return
    n_cores = 1 + max(int(plan.rank_core.max(initial=0)), int(plan.core.max(initial=0)))
    if plan.machine is not None:
        n_cores = plan.machine.cores_per_node
    if len(cores) < n_cores:
        raise CollplanError(
            f"--cores: {len(cores)} processors, the plan's nodes have {n_cores} cores; "
            "name one for each, the same for several if need be"
        )


def go_to_core(comm: Any, plan: Plan, cores: Sequence[int] | None) -> None:
    """Bind this rank to the processor of its core; collective.

    Raises
    ------
    CollplanError
        On all ranks, if a rank cannot be bound.
    """
    if cores is None:
        return
    from collplan.executors.mpi.host.cores import pin_thread
    from collplan.executors.mpi.stall.timed_collectives import RollCall

    def go() -> None:
        check_cores(plan, cores)
        # Bind before the number of ranks per core is first queried, as that is cached.
        pin_thread(cores[int(plan.rank_core[comm.rank])])

    RollCall(comm, None, "use the cores").together(go)
