"""``collplan run``: a plan under MPI, checked and timed."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from collplan.cli.options import Json, SpecOrPlan
from collplan.cli.own_command import own_command

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline
    from collplan.measure.task_times import TaskTimes
    from collplan.planner.plan.plan import Plan
    from collplan.specs import PlanSpec

_BAD_INPUT: Final = 2
_TOO_LARGE: Final = "the plan does not fit into memory; use fewer ranks or a smaller count"


def command(
    source: SpecOrPlan,
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks",
            min=1,
            metavar="RANKS",
            help="Number of ranks. Must be the plan's own; a spec of one node is planned for "
            "this many ranks instead.",
        ),
    ] = None,
    repetitions: Annotated[
        int, typer.Option(min=1, help="Timed runs, interleaved with native ones.")
    ] = 20,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare the results with numpy's.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Give up after this long; after half of it in which a plan stands still, ranks "
            "say what they wait for.",
        ),
    ] = 600,
    cores: Annotated[
        str | None,
        typer.Option(
            metavar="P,...",
            help="The processor of each core of a node: ranks and their progress threads are "
            "kept there. Cores may share processors.",
        ),
    ] = None,
    predict: Annotated[
        bool,
        typer.Option("--predict", help="Record every task, too; compare with the machine's model."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write recorded and simulated tasks: FILE.json for Perfetto, FILE.paje for Paje.",
            writable=True,
            metavar="FILE",
        ),
    ] = None,
    oversubscribe: Annotated[
        bool,
        typer.Option("--oversubscribe", help="Start more than 8 ranks per core where asked to."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a plan under MPI; check it against numpy, time it against native.

    A plan file of up to 100,000 tasks is proved first.
    Starts the right mpiexec by itself; under mpiexec it just runs. Of every
    repetition the slowest rank counts. Exit status 1 where a result is wrong.
    """
    from collplan.cli.run_cores import check_cores, let_share, parse_cores
    from collplan.compiling import compile_spec
    from collplan.executors.mpi.launch.jobs import check_crowd, check_room, relaunch
    from collplan.executors.mpi.launch.launcher import is_under_mpi, n_cores
    from collplan.planner.plan.plan import Plan
    from collplan.reports.prediction import check_trace

    places = parse_cores(cores)
    request = Request(source, ranks, repetitions, check, timeout, places, predict, trace, as_json)
    if is_under_mpi():
        return _run_as_rank(request)
    # What is wrong with the input is said once, before any rank is started.
    check_trace(trace, predict)
    wanted = open_source(source, ranks)
    if not oversubscribe:
        n_ranks = wanted.n_ranks if isinstance(wanted, Plan) else wanted.machine.n_ranks
        check_crowd(n_ranks, n_cores())
    plan = wanted if isinstance(wanted, Plan) else compile_spec(wanted, idle=[])
    check_room(plan.n_ranks, _buffer_bytes(plan))
    prove_file(plan, source)
    check_cores(plan, places)
    let_share(places)
    return relaunch(request.command(plan.n_ranks), plan.n_ranks, timeout_s=timeout)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    source: Path
    ranks: int | None
    repetitions: int
    check: bool
    timeout_s: float
    cores: tuple[int, ...] | None
    predict: bool
    trace: Path | None
    as_json: bool

    @property
    def stall_s(self) -> float:
        """Return how long a plan may stand still: ranks speak before the launcher ends them."""
        return self.timeout_s / 2

    def command(self, n_ranks: int) -> list[str]:
        """Return the command line that asks the same of each of `n_ranks` ranks."""
        line = own_command("run", self.source, "-n", n_ranks)
        line += ["--repetitions", str(self.repetitions), "--check" if self.check else "--no-check"]
        line += ["--timeout", str(self.timeout_s)]
        if self.cores is not None:
            line += ["--cores", ",".join(map(str, self.cores))]
        if self.trace is not None:
            line += ["--trace", str(self.trace)]
        flags = {"--predict": self.predict, "--json": self.as_json}
        return line + [flag for flag, is_set in flags.items() if is_set]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed, and on rank 0, where tasks were recorded, what goes into a trace."""

    document: dict[str, Any]
    simulated: Timeline | None = None
    measured: TaskTimes | None = None


def _run_as_rank(request: Request) -> int:
    """Run on the ranks that are there; only rank 0 speaks."""
    from collplan.executors.mpi.launch.launcher import launcher_rank
    from collplan.executors.mpi.world import join_world
    from collplan.reports.prediction import check_trace
    from collplan.specs.errors import CollplanError

    try:
        check_trace(request.trace, request.predict)
        comm = join_world()
        outcome = _measure(comm, request)
    except CollplanError:
        if launcher_rank() > 0:
            return _BAD_INPUT
        raise
    if comm.rank == 0:
        _show(outcome, request)
    return 1 if outcome.document["correct"] is False else 0


def _show(outcome: Outcome, request: Request) -> None:
    """Print what was measured, then write the trace, which may fail."""
    from collplan.reports.output import print_json, print_line
    from collplan.reports.prediction import print_prediction, write_both

    if outcome.document["why_caller"] is not None:
        sys.stderr.write(
            "collplan: warning: communication cores are not used, callers run background tasks: "
            f"{outcome.document['why_caller'].replace('bind(cores=[...])', '--cores P,...')}\n"
        )
    if request.as_json:
        print_json(outcome.document)
    else:
        _print_report(outcome.document)
        if request.predict:
            print_prediction(outcome.document)
    if request.trace is not None and outcome.simulated and outcome.measured:
        write_both(request.trace, outcome.simulated, outcome.measured)
        if not request.as_json:
            print_line(f"wrote {request.trace}")


def _measure(comm: Any, request: Request) -> Outcome:
    """Run on `comm`; a rank that fails where others don't ends the job, or they'd wait for it."""
    # Only here: without mpi4py these are no modules that can be imported.
    from collplan.cli.run_cores import go_to_core
    from collplan.executors.mpi.world import join_world
    from collplan.measure.run import run_plan
    from collplan.specs.errors import CollplanError

    try:
        plan, timeline = _agree_on_plan(comm, request)
        join_world(plan.n_ranks)
        go_to_core(comm, plan, request.cores)
        report = run_plan(
            plan,
            comm,
            repetitions=request.repetitions,
            check=request.check,
            timeout_s=request.stall_s,
            cores=request.cores,
        )
        return _record(comm, plan, timeline, request, report.to_json())
    except CollplanError:
        raise
    except MemoryError:
        _end_all(comm, f"collplan: error: {_TOO_LARGE}\n", _BAD_INPUT)
    except Exception:
        _end_all(comm, traceback.format_exc(), 1)


def _end_all(comm: Any, reason: str, status: int) -> NoReturn:
    from collplan.executors.mpi.together import abort

    abort(comm, status, reason)
    raise typer.Exit(status)


def _record(
    comm: Any, plan: Plan, timeline: Timeline | None, request: Request, document: dict[str, Any]
) -> Outcome:
    """Add what recorded tasks show beside simulated ones, where that is asked for."""
    from collplan.measure.task_times import record_plan
    from collplan.reports.prediction import prediction_report

    times = None
    if request.predict:
        times = record_plan(plan, comm, repetitions=request.repetitions, timeout_s=request.stall_s)
    if times is None or timeline is None:
        return Outcome(document)
    trace = {} if request.trace is None else {"trace": str(request.trace)}
    return Outcome(document | prediction_report(timeline, times) | trace, timeline, times)


def _agree_on_plan(comm: Any, request: Request) -> tuple[Plan, Timeline | None]:
    """Return this rank's plan; where one rank has none, all raise instead of waiting for it.

    Rank 0, where a prediction is asked for, takes the whole plan and simulates
    it, while the others sleep.
    """
    from collplan.executors.mpi.launch.launcher import EXPECTED_RANKS
    from collplan.executors.mpi.together import first_alone, together
    from collplan.reports.output import warn
    from collplan.reports.prediction import simulate_on_own_machine
    from collplan.specs.errors import CollplanError

    is_simulating = request.predict and comm.rank == 0

    idle: list[str] = []

    def make() -> tuple[Plan, Timeline | None]:
        rank = None if is_simulating else comm.rank
        plan = plan_for(request.source, request.ranks, rank, idle)
        # What this command started was proved before.
        if comm.rank == 0 and EXPECTED_RANKS not in os.environ:
            prove_file(plan, request.source)
        return plan, simulate_on_own_machine(plan) if is_simulating else None

    def make_in_memory() -> tuple[Plan, Timeline | None]:
        try:
            return first_alone(comm, make)
        except MemoryError:
            raise CollplanError(_TOO_LARGE) from None

    made = together(comm, make_in_memory)
    # What a pass left alone on every rank it left alone in the plan.
    everywhere = set.intersection(*map(set, comm.allgather(idle)))
    for line in idle if comm.rank == 0 else ():
        if line in everywhere:
            warn(line)
    return made


def plan_for(
    source: Path, ranks: int | None, rank: int | None = None, idle: list[str] | None = None
) -> Plan:
    """Return the plan to run, for `ranks` ranks where that is asked for.

    A spec is compiled for `rank` only where one is given; a plan file is whole. Lines on
    passes that change nothing are appended to `idle`.

    Raises
    ------
    CollplanError
        If the source describes another number of ranks and can't be changed.
    """
    from collplan.compiling import compile_spec
    from collplan.planner.plan.plan import Plan

    wanted = open_source(source, ranks)
    if isinstance(wanted, Plan):
        return wanted
    # Where there are too many ranks, that is said later; until then any program will do.
    only = None if rank is None else rank % wanted.machine.n_ranks
    return compile_spec(wanted, rank=only, idle=idle)


def open_source(source: Path, ranks: int | None) -> Plan | PlanSpec:
    """Return the plan in a plan file, or the spec to compile, for `ranks` ranks.

    Raises
    ------
    CollplanError
        If the source describes another number of ranks and can't be changed.
    """
    from collplan.cli.inputs import announce_compiling, is_plan_file, open_spec
    from collplan.planner.formats.npz import load
    from collplan.specs.errors import CollplanError

    announce_compiling()
    if not is_plan_file(source):
        return resize(open_spec(source), ranks)
    plan = load(source)
    if ranks not in (None, plan.n_ranks):
        raise CollplanError(
            f"-n: {ranks} ranks, but {source} is compiled for {plan.n_ranks}; "
            f"leave -n out, or compile the spec for {ranks} ranks"
        )
    return plan


def _buffer_bytes(plan: Plan) -> int:
    """Return what the buffers of all ranks take: results are there by plan, natively, and right."""
    sent, received, scratch = plan.buffer_sizes.sum(axis=0).tolist()
    shared = int(plan.shared_sizes.sum())
    return int(plan.itemsize * (sent + 3 * received + scratch + shared))


def prove_file(plan: Plan, source: Path) -> None:
    """Prove a plan read from a file, which may be anybody's, or warn that it is too large for that.

    Raises
    ------
    CollplanError
        If the plan is refuted: its ranks would abort, hang or compute something else.
    """
    from collplan.cli.inputs import is_plan_file
    from collplan.planner.errors import PlanError
    from collplan.planner.passes.registry import VERIFY_LIMIT
    from collplan.planner.verify import verify
    from collplan.reports.output import show_progress, warn
    from collplan.specs.errors import CollplanError

    if not is_plan_file(source):
        return
    if plan.n_tasks > VERIFY_LIMIT:
        warn(
            f"{source}: is not proved before it runs, as it has {plan.n_tasks} tasks, more than "
            f"{VERIFY_LIMIT}; 'collplan verify' proves it"
        )
        return
    try:
        with show_progress(f"proving {plan.n_tasks} tasks"):
            verify(plan)
    except PlanError as error:
        raise CollplanError(
            f"{source}: is refuted, and would fail or hang: {error.kind}: {error}; "
            f"compile the spec again"
        ) from None


def resize(spec: PlanSpec, ranks: int | None) -> PlanSpec:
    """Return `spec` for `ranks` ranks, if its machine is one node.

    Raises
    ------
    CollplanError
        If the machine has more nodes and another number of ranks, or the
        spec doesn't allow so many.
    """
    from pydantic import ValidationError

    from collplan.specs.errors import SpecError
    from collplan.specs.explaining import explain

    machine = spec.machine
    if ranks is None or ranks == machine.n_ranks:
        return spec
    if machine.nodes > 1:
        raise SpecError(
            f"-n: {ranks} ranks, but machine has {machine.n_ranks} on {machine.nodes} nodes; "
            f"leave -n out, or change machine"
        )
    # A node keeps the cores it has, so that its NUMA domains still fit.
    cores = max(ranks, machine.cores_per_node) if machine.cores is None else machine.cores
    try:
        return spec.replace(machine=machine.replace(ranks_per_node=ranks, cores=cores))
    except ValidationError as error:
        raise SpecError(explain(error, before=f"-n {ranks}: ")) from None


def _print_report(report: dict[str, Any]) -> None:
    from collplan.reports.output import format_bytes, format_seconds, print_line, print_table

    if report["correct"] is None:
        verdict = "not checked"
    elif report["correct"]:
        verdict = f"correct, checked against {report['checked_against']}"
    else:
        wrong = report["first_wrong"]
        verdict = (
            f"WRONG: rank {wrong['rank']}, element {wrong['element']}: got {wrong['got']}, "
            f"expected {wrong['expected']} ({wrong['n_wrong']} wrong in all)"
        )
    print_line(
        f"{report['ranks']} ranks, {format_bytes(report['bytes'])}, {report['library']}: {verdict}"
    )
    print_table(
        ["", "median", "quartiles", "least"],
        [
            [
                name,
                format_seconds(report[f"{prefix}median_s"]),
                " to ".join(map(format_seconds, report[f"{prefix}quartiles_s"])),
                format_seconds(report[f"{prefix}min_s"]),
            ]
            for name, prefix in (("plan", ""), ("native", "native_"))
        ],
        plain=True,  # Open MPI gives its ranks a pseudo-terminal.
    )
    print_line(
        f"ratio {report['ratio']:.3g}, quartiles "
        f"{' to '.join(f'{ratio:.3g}' for ratio in report['ratio_quartiles'])}, "
        f"over {report['repetitions']} repetitions; the slowest rank of each counts"
    )
