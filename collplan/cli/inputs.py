"""Reading of the plans and specs that users pass to commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from collplan.api.sources import is_plan_file, read_schedule
from collplan.planner.errors import AsymmetricError, PlanError
from collplan.reports.output import note, warn
from collplan.reports.progress import shows_progress, spinner
from collplan.specs import Network, PlanSpec
from collplan.specs.errors import CollplanError, SpecError
from collplan.specs.explaining import explaining
from collplan.specs.loading import PROGRAM_REFUSED, load_request, machine_at_hand

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan
    from collplan.specs.programs.program import ProgramSpec

    Request = PlanSpec | ProgramSpec

Wanted = TypeVar("Wanted", bound="Request")

LOGGOPSIM: Final = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"
"""Default parameters of LogGOPSim, for schedules without a machine."""
FOLDED_FROM: Final = 1_000_000
"""Number of messages from which plans are folded if possible."""


def open_plan(
    path: Path, *, folds: bool = False, rank: int | None = None, is_proved: bool = True
) -> Plan:
    """Return the plan that a spec, a plan file or a GOAL file describes.

    Plan files are recognized by their first bytes or by their suffix.

    Parameters
    ----------
    path : Path
        Path of the file.
    folds : bool
        Whether a large plan may be folded to one node if all nodes have the same tasks.
    rank : int, optional
        Rank that the plan must have.
    is_proved : bool
        Whether the plan of a spec is proved if it is small.

    Raises
    ------
    CollplanError
        If the file is none of these, is invalid, or describes no such rank.
    """
    announce_compiling()
    if path.suffix == ".goal" or is_plan_file(path):
        plan = _read_schedule(path)
        _require_rank(rank, plan.n_ranks)
        return plan
    request = open_request(path)
    # Errors come before compiling, which may print warnings.
    _require_rank(rank, request.machine.n_ranks)
    request = resolve_noting(request)
    folded = _fold_large(request) if folds else None
    return folded or compile_warning(request, is_proved=is_proved)


def _require_rank(rank: int | None, n_ranks: int) -> None:
    if rank is not None and not 0 <= rank < n_ranks:
        raise CollplanError(f"--rank: {rank} is not a rank; the plan's are 0 to {n_ranks - 1}")


def _read_schedule(path: Path) -> Plan:
    """Return the plan of a plan file or a GOAL file."""
    with spinner(f"reading {path}"):
        return read_schedule(path)


def _fold_large(spec: Request) -> Plan | None:
    """Return a folded plan; None if the plan is small or cannot be folded."""
    from collplan.planner.compiler.ranks import count_messages

    if not isinstance(spec, PlanSpec):
        from collplan.select.joint import folded_plan

        return folded_plan(spec)
    network = spec.machine.network
    if network.joins_nodes:
        return None
    if count_messages(spec) < FOLDED_FROM:
        return None
    try:
        return compile_warning(spec, fold=True)
    except AsymmetricError:
        return None


def compile_warning(request: Request, **options: Any) -> Plan:
    """Compile a spec or a program, and print a warning for each pass that changes nothing.

    If it says ``decomposition: auto``, a note names the choice.
    """
    from collplan.api.compiling import compile_spec

    idle: list[str] = []
    chosen = resolve_noting(request)
    with spinner("compiling the plan"):
        plan = compile_spec(chosen, idle=idle, **options)
    for line in idle:
        warn(line)
    return plan


def resolve_noting(request: Request) -> Request:
    """Return a spec or program with ``decomposition: auto`` replaced; a note names the choice."""
    if not isinstance(request, PlanSpec):
        return _resolve_program(request)
    from collplan.select.auto import choose

    if request.decomposition.name != "auto":
        return request
    with spinner("choosing a decomposition"):
        found = choose(request)
    note(found.words)
    return found.spec


def _resolve_program(program: ProgramSpec) -> ProgramSpec:
    from collplan.select.joint import choose_jointly, has_auto

    if not has_auto(program):
        return program
    with spinner("choosing the methods of all steps"):
        found = choose_jointly(program)
    note(found.words)
    return found.program


def open_spec(path: Path) -> PlanSpec:
    """Return the spec in a file; on an emulated cluster, the default machine is the cluster.

    Raises
    ------
    CollplanError
        If the file is not a spec, or the description of the emulated cluster is invalid.
    """
    found = open_request(path)
    if not isinstance(found, PlanSpec):
        raise SpecError(PROGRAM_REFUSED.format(path=path))
    return found


def open_request(path: Path) -> Request:
    """Return the spec or the program in a file, as `open_spec` does.

    Raises
    ------
    CollplanError
        As for `open_spec`.
    """
    announce_compiling()
    if path.suffix == ".goal":
        raise CollplanError(
            f"{path}: is a GOAL schedule, which says nothing of a collective; give a spec"
        )
    return load_request(path, machine_at_hand())


def announce_compiling() -> None:
    """Have one rank print a message when kernels are first compiled, if progress is shown."""
    from collplan.planner.machine_code.compile_time import announce_with

    if shows_progress():
        announce_with(_say_compiling)


def _say_compiling() -> None:
    from collplan.executors.mpi.launch.environment import launcher_rank

    if launcher_rank() <= 0:
        sys.stderr.write("collplan: compiling kernels, once; later runs find them compiled\n")
        sys.stderr.flush()


def open_source(source: Path, ranks: int | None) -> Plan | Request:
    """Return the plan in a plan file, or the spec or program in a file, for `ranks` ranks.

    Raises
    ------
    CollplanError
        If the source has another number of ranks that cannot be changed.
    """
    announce_compiling()
    if not is_plan_file(source):
        return resize(open_request(source), ranks)
    plan = read_schedule(source)
    if ranks not in (None, plan.n_ranks):
        raise CollplanError(
            f"-n: {ranks} ranks, but {source} is compiled for {plan.n_ranks}; "
            f"leave -n out, or compile the spec for {ranks} ranks"
        )
    return plan


def prove_file(plan: Plan, source: Path) -> None:
    """Prove a plan if it comes from a plan file, or warn that the plan is too large to prove.

    Raises
    ------
    CollplanError
        If the plan is refuted: its ranks would abort, hang, or compute a wrong result.
    """
    if not is_plan_file(source):
        return
    try:
        prove_small(plan, source, "before it runs")
    except PlanError as error:
        raise CollplanError(
            f"{source}: is refuted, and would fail or hang: {error.kind}: {error}; "
            f"compile the spec again"
        ) from None


def prove_small(plan: Plan, source: Path, when: str = "here") -> bool:
    """Prove a plan, or warn that it is too large to prove; return whether it is proved.

    Raises
    ------
    PlanError
        If the plan is refuted.
    """
    from collplan.planner.passes.registry import VERIFY_LIMIT, prove

    with spinner(f"proving {plan.n_tasks} tasks"):
        is_proved = prove(plan)
    if not is_proved:
        warn(
            f"{source}: is not proved {when}, as it has {plan.n_tasks} tasks, more than "
            f"{VERIFY_LIMIT}; 'collplan verify' proves it"
        )
    return is_proved


def resize(spec: Wanted, ranks: int | None) -> Wanted:
    """Return a spec or program for `ranks` ranks; only a machine of one node can change.

    Raises
    ------
    CollplanError
        If the machine has several nodes and another number of ranks, or the other fields of
        the spec do not allow this number.
    """
    machine = spec.machine
    if ranks is None or ranks == machine.n_ranks:
        return spec
    if machine.nodes > 1:
        raise SpecError(
            f"-n: {ranks} ranks, but machine has {machine.n_ranks} on {machine.nodes} nodes; "
            f"leave -n out, or change machine"
        )
    # The node keeps its number of cores, so that its NUMA domains still fit.
    cores = max(ranks, machine.cores_per_node) if machine.cores is None else machine.cores
    with explaining(type(spec), before=f"-n {ranks}: "):
        return cast(
            "Wanted", spec.replace(machine=machine.replace(ranks_per_node=ranks, cores=cores))
        )


def to_simulate(plan: Plan) -> Plan:
    """Return a plan that can be simulated: native calls of programs have MPICH's algorithms."""
    if plan.program is None:
        return plan
    from collplan.select.joint import priced_plan

    return priced_plan(plan)


def choose_network(plan: Plan, loggps: str | None) -> Network:
    """Return the network on which a plan is simulated.

    The parameters in `loggps` replace those of all links. The costs of copies and reductions
    remain those of the machine.
    """
    from collplan.executors.cost import Loggps

    if plan.machine is None:
        return Loggps.parse(loggps or LOGGOPSIM)
    own = plan.machine.network
    if loggps is None:
        return own
    return Loggps.parse(loggps).replace(
        copy_ns_per_byte=own.copy_ns_per_byte, reduce_ns_per_byte=own.reduce_ns_per_byte
    )
