"""Plans, specs and message graphs from the files that commands get."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.planner.errors import AsymmetricError, PlanError
from collplan.reports.output import warn
from collplan.reports.progress import shows_progress, spinner
from collplan.specs import Network, PlanSpec
from collplan.specs.documents import check_size, require_regular
from collplan.specs.errors import CollplanError, SpecError
from collplan.specs.explaining import explaining
from collplan.specs.loading import load_spec, machine_at_hand, spec_in

if TYPE_CHECKING:
    from collplan.planner.formats.message_graph import MessageGraph
    from collplan.planner.plan.plan import Plan

ZIP_MAGIC = b"PK\x03\x04"
_KINDS = "spec, plan or GOAL"
PLAN_SUFFIXES = (".plan", ".npz")


LOGGOPSIM: Final = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"
"""LogGOPSim's own parameters, for schedules that come without a machine."""
FOLDED_FROM: Final = 1_000_000
"""Messages from which plans are folded, where that can be done."""


def open_plan(path: Path, *, folds: bool = False, rank: int | None = None) -> Plan:
    """Return the plan that a spec, a plan file or a GOAL file describes.

    Plan files are known by their first bytes, whatever they are called.

    Parameters
    ----------
    path : Path
    folds : bool
        Whether a large plan may be folded, if it is the same on all nodes.
    rank : int, optional
        A rank that the plan must have.

    Raises
    ------
    CollplanError
        If the file is none of these, does not hold what it should, or has no such rank.
    """
    announce_compiling()
    if path.suffix == ".goal" or is_plan_file(path):
        plan = _read_schedule(path)
        _require_rank(rank, plan.n_ranks)
        return plan
    spec = open_spec(path)
    # Compiling may warn, which comes after what is refused.
    _require_rank(rank, spec.machine.n_ranks)
    return _compile(spec, folds=folds)


def _compile(spec: PlanSpec, *, folds: bool) -> Plan:
    return (_fold_large(spec) if folds else None) or compile_warning(spec)


def _require_rank(rank: int | None, n_ranks: int) -> None:
    if rank is not None and not 0 <= rank < n_ranks:
        raise CollplanError(f"--rank: {rank} is not a rank; the plan's are 0 to {n_ranks - 1}")


def _read_schedule(path: Path) -> Plan:
    """Return the plan of a plan file or a GOAL file."""
    with spinner(f"reading {path}"):
        if path.suffix != ".goal":
            return _read_plan(path)
        from collplan.planner.formats.goal import read_goal

        require_regular(path, _KINDS)
        return read_goal(path)


def open_priced(path: Path, *, folds: bool) -> Plan | MessageGraph:
    """Return a message graph, or what `open_plan` does.

    A message graph is a document with a list of messages, which no spec has.
    """
    from collplan.planner.formats.message_graph import (
        holds_messages,
        parse_message_graph,
        read_graph_or_spec,
    )

    if path.suffix == ".goal" or is_plan_file(path):
        return open_plan(path, folds=folds)
    announce_compiling()
    with spinner(f"reading {path}"):
        document = read_graph_or_spec(path)
        if holds_messages(document):
            return parse_message_graph(document, str(path))
    check_size(document, str(path))
    return _compile(spec_in(document, path, machine_at_hand()), folds=folds)


def _read_plan(path: Path) -> Plan:
    """Return the plan in a file, with a checked spec: a command refuses a file before it begins."""
    from collplan.planner.formats.npz import load

    plan = load(path)
    _ = plan.spec
    return plan


def _fold_large(spec: PlanSpec) -> Plan | None:
    """Return the folded plan of a spec whose plan is large; None where nodes differ."""
    from collplan.planner.compiler import count_messages

    network = spec.machine.network
    if spec.decomposition.name == "auto" or network.joins_nodes:
        return None
    if count_messages(spec) < FOLDED_FROM:
        return None
    try:
        return compile_warning(spec, fold=True)
    except AsymmetricError:
        return None


def compile_warning(spec: PlanSpec, **options: Any) -> Plan:
    """Compile a spec; warn on standard error of every pass that changes nothing."""
    from collplan.compiling import compile_spec

    idle: list[str] = []
    with spinner("compiling the plan"):
        plan = compile_spec(spec, idle=idle, **options)
    for line in idle:
        warn(line)
    return plan


def open_spec(path: Path) -> PlanSpec:
    """Return the spec in a file; on an emulated cluster it describes the cluster by default.

    Raises
    ------
    CollplanError
        If the file is not a spec, or the machine at hand is told wrongly.
    """
    announce_compiling()
    if path.suffix == ".goal":
        raise CollplanError(
            f"{path}: is a GOAL schedule, which says nothing of a collective; give a spec"
        )
    return load_spec(path, machine_at_hand())


def announce_compiling() -> None:
    """Say so where progress is shown, if kernels are compiled from now on; one rank speaks."""
    from collplan.planner.arrays.compile_time import announce_with

    if shows_progress():
        announce_with(_say_compiling)


def _say_compiling() -> None:
    from collplan.executors.mpi.launch.launcher import launcher_rank

    if launcher_rank() <= 0:
        sys.stderr.write("collplan: compiling kernels, once; later runs find them compiled\n")
        sys.stderr.flush()


def is_plan_file(path: Path) -> bool:
    """Return whether `path` is to be read as a plan file.

    Raises
    ------
    CollplanError
        If there is no such file.
    """
    require_regular(path, _KINDS)
    with path.open("rb") as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC or path.suffix in PLAN_SUFFIXES


def open_source(source: Path, ranks: int | None) -> Plan | PlanSpec:
    """Return the plan in a plan file, or the spec to compile, for `ranks` ranks.

    Raises
    ------
    CollplanError
        If the source describes another number of ranks and can't be changed.
    """
    announce_compiling()
    if not is_plan_file(source):
        return resize(open_spec(source), ranks)
    plan = _read_plan(source)
    if ranks not in (None, plan.n_ranks):
        raise CollplanError(
            f"-n: {ranks} ranks, but {source} is compiled for {plan.n_ranks}; "
            f"leave -n out, or compile the spec for {ranks} ranks"
        )
    return plan


def prove_file(plan: Plan, source: Path) -> None:
    """Prove a plan read from a file, which may be anybody's, or warn that it is too large for that.

    Raises
    ------
    CollplanError
        If the plan is refuted: its ranks would abort, hang or compute something else.
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
    """Prove a plan, or warn that it is too large for that; return whether it is proved.

    Raises
    ------
    PlanError
        If the plan is refuted.
    """
    from collplan.planner.passes.registry import VERIFY_LIMIT
    from collplan.planner.verify import verify

    if plan.n_tasks > VERIFY_LIMIT:
        warn(
            f"{source}: is not proved {when}, as it has {plan.n_tasks} tasks, more than "
            f"{VERIFY_LIMIT}; 'collplan verify' proves it"
        )
        return False
    with spinner(f"proving {plan.n_tasks} tasks"):
        verify(plan)
    return True


def resize(spec: PlanSpec, ranks: int | None) -> PlanSpec:
    """Return `spec` for `ranks` ranks, if its machine is one node.

    Raises
    ------
    CollplanError
        If the machine has more nodes and another number of ranks, or the
        spec doesn't allow that many.
    """
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
    with explaining(before=f"-n {ranks}: "):
        return spec.replace(machine=machine.replace(ranks_per_node=ranks, cores=cores))


def choose_network(plan: Plan, loggps: str | None) -> Network:
    """Return the network to price `plan` on.

    Parameters given as `loggps` hold for links; what copies and reductions
    cost stays the machine's.
    """
    from collplan.executors.cost import Loggps

    if plan.spec is None:
        return Loggps.parse(loggps or LOGGOPSIM)
    own = plan.spec.machine.network
    if loggps is None:
        return own
    return Loggps.parse(loggps).replace(
        copy_ns_per_byte=own.copy_ns_per_byte, reduce_ns_per_byte=own.reduce_ns_per_byte
    )
