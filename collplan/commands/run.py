"""``collplan run``: a plan under MPI, checked and timed."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collplan.options import Json, SpecOrPlan

if TYPE_CHECKING:
    from planner.plan import Plan
    from specs import PlanSpec


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
        float, typer.Option(min=1, metavar="SECONDS", help="Give up after this long.")
    ] = 600,
    as_json: Json = False,
) -> int:
    """Run a plan under MPI; check it against numpy, time it against native.

    Starts the right mpiexec by itself; under mpiexec it just runs. Of every
    repetition the slowest rank counts. Exit status 1 where a result is wrong.
    """
    from executors.mpi.launch import is_under_mpi, relaunch

    if is_under_mpi():
        return _run_as_rank(source, ranks, repetitions, check, as_json)
    # What is wrong with the input is said once, before any rank is started.
    n_ranks = plan_for(source, ranks).n_ranks
    program = [sys.executable, "-m", "collplan", "run", str(source), "-n", str(n_ranks)]
    program += ["--repetitions", str(repetitions), "--check" if check else "--no-check"]
    if as_json:
        program.append("--json")
    return relaunch(program, n_ranks, timeout_s=timeout)


def _run_as_rank(
    source: Path, ranks: int | None, repetitions: int, check: bool, as_json: bool
) -> int:
    """Run on the ranks that are there; only rank 0 speaks."""
    from collplan.output import print_json
    from executors.mpi.launch import launcher_rank
    from executors.mpi.world import join_world
    from specs.errors import CollplanError

    try:
        comm = join_world()
        document = _measure(comm, source, ranks, repetitions, check)
    except CollplanError:
        if launcher_rank() > 0:
            return 2
        raise
    if comm.rank == 0:
        if as_json:
            print_json(document)
        else:
            _print_report(document)
    return 1 if document["correct"] is False else 0


def _measure(
    comm: Any, source: Path, ranks: int | None, repetitions: int, check: bool
) -> dict[str, Any]:
    """Run on `comm`; a rank that fails where others don't ends the job, or they'd wait for it."""
    # Only here: without mpi4py these are no modules that can be imported.
    from executors.mpi.measure import run_plan
    from executors.mpi.world import join_world
    from specs.errors import CollplanError

    try:
        plan = _agree_on_plan(comm, source, ranks)
        join_world(plan.n_ranks)
        return run_plan(plan, comm, repetitions=repetitions, check=check).to_json()
    except CollplanError:
        raise
    except Exception:
        sys.stderr.write(traceback.format_exc())
        sys.stderr.flush()
        comm.Abort(1)
        raise


def _agree_on_plan(comm: Any, source: Path, ranks: int | None) -> Plan:
    """Return this rank's plan; where one rank has none, all raise instead of waiting for it."""
    from executors.mpi.world import first_alone
    from specs.errors import CollplanError

    plan, error = None, None
    try:
        plan = first_alone(comm, lambda: plan_for(source, ranks, comm.rank))
    except CollplanError as failure:
        error = str(failure)
    errors = [text for text in comm.allgather(error) if text is not None]
    if errors or plan is None:
        raise CollplanError(errors[0])
    return plan


def plan_for(source: Path, ranks: int | None, rank: int | None = None) -> Plan:
    """Return the plan to run, for `ranks` ranks where that is asked for.

    A spec is compiled for `rank` only where one is given; a plan file is whole.

    Raises
    ------
    CollplanError
        If the source describes another number of ranks and can't be changed.
    """
    from collplan.inputs import is_plan_file, open_spec
    from planner import compile_plan
    from planner.plan import Plan
    from specs.errors import CollplanError

    if not is_plan_file(source):
        spec = resize(open_spec(source), ranks)
        # Where there are too many ranks, that is said later; until then any program will do.
        return compile_plan(spec, rank=None if rank is None else rank % spec.machine.n_ranks)
    plan = Plan.load(source)
    if ranks not in (None, plan.n_ranks):
        raise CollplanError(
            f"-n: {ranks} ranks, but {source} is compiled for {plan.n_ranks}; "
            f"leave -n out, or compile the spec for {ranks} ranks"
        )
    return plan


def resize(spec: PlanSpec, ranks: int | None) -> PlanSpec:
    """Return `spec` for `ranks` ranks, if its machine is one node.

    Raises
    ------
    CollplanError
        If the machine has more nodes and another number of ranks, or the
        spec doesn't allow so many.
    """
    from pydantic import ValidationError

    from specs.errors import SpecError
    from specs.loading import explain

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
        raise SpecError(f"-n {ranks}: {explain(error)}") from None


def _print_report(report: dict[str, Any]) -> None:
    from collplan.output import format_bytes, format_seconds, print_line, print_table

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
