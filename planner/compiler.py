"""Compilation of specs into plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError, AsymmetricError, IrreproducibleError
from collplan.planner.lowering.build import build
from collplan.planner.lowering.program import Program, program_of
from collplan.planner.lowering.reproducible import without_blocks
from collplan.planner.lowering.select import priced_spec
from collplan.planner.lowering.symmetry import Symmetries, folding_of
from collplan.planner.memory import require_memory
from collplan.planner.passes import find_pass, prove, registry, run_blueprint_passes, run_passes
from collplan.planner.passes.registry import check_choices
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.calls import has_calls
from collplan.planner.rewrite.fold import fold, require_copy
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.rewrite.rebuild import with_hazards
from collplan.planner.rewrite.unfold import require_copies
from collplan.specs import PassChoice, PlanSpec, Transport
from collplan.specs.collectives.collective_base import Reproducible

if TYPE_CHECKING:
    from collplan.planner.verify import Results

BYTES_PER_TASK: Final = 400
"""Peak memory of compiling the plan of all ranks, in bytes per task."""


def compile_plan(
    spec: PlanSpec,
    *,
    rank: int | None = None,
    idle: list[str] | None = None,
    is_proved: bool = True,
) -> Plan:
    """Compile a spec into the task graph that it describes.

    Parameters
    ----------
    spec : PlanSpec
        A spec whose decomposition is not ``auto``. `collplan.compile` resolves ``auto``.
    rank : int, optional
        Compile only this rank's program, which is its rows of the whole plan. The whole plan is
        compiled only if a pass needs all ranks, and is then verified only if `rank` is 0. In all
        other cases, `prove_spec` verifies it.
    idle : list of str, optional
        A list to which a line is appended for every pass of the spec that changes nothing. The
        line states what the pass needs.
    is_proved : bool
        Whether a plan of all ranks is verified, as it is and after each pass that changes it, if
        it has up to 100,000 tasks. Plans that are only used for estimates of cost need no proof.

    Returns
    -------
    Plan
        A plan that has the same bytes for the same spec, on any machine.

    Raises
    ------
    AlgorithmError
        If an algorithm is unknown or does not support these ranks or this operation, if a
        decomposition or pass cannot be applied, or if `rank` is not a rank of the machine.
    PlanError
        If the plan is wrong, for example because an algorithm of the user is.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> allreduce = {"kind": "allreduce", "count": 8}
    >>> machine = {"ranks_per_node": 4}
    >>> spec = PlanSpec.model_validate({"machine": machine, "collective": allreduce})
    >>> compile_plan(spec).n_tasks, compile_plan(spec, rank=2).n_tasks
    (24, 6)
    """
    _require_rank(spec, rank)
    check_choices(spec.passes)
    unchanged: list[PassChoice] = []
    ranks = _needed_ranks(spec, rank)
    sketched = draft(spec, only_ranks=None if ranks is None else np.atleast_1d(ranks))
    blueprint, plan_passes = run_blueprint_passes(sketched, spec.passes, unchanged)
    # If every rank compiles the whole plan, the proof by rank 0 is sufficient.
    is_proved = is_proved and rank in (None, 0) and ranks is None
    plan = _transported(program_of(blueprint), ranks, is_proved=is_proved)
    plan = run_passes(plan, plan_passes, is_proved=is_proved, idle=unchanged)
    if is_proved and prove(plan):
        require_runs(plan)
    _list_idle(idle, unchanged, spec)
    return plan if rank is None else restrict(plan, rank)


def _require_rank(spec: PlanSpec, rank: int | None) -> None:
    size = spec.machine.n_ranks
    if rank is not None and not 0 <= rank < size:
        raise AlgorithmError(f"rank: {rank} is not one of the machine's {size} ranks")


@lru_cache(maxsize=256)
def prove_spec(spec: PlanSpec) -> None:
    """Verify the plan of all ranks of a spec, once per process, if it is small.

    Ranks that compile only their own programs call this function, or have rank 0 call it for all.
    The plan of all ranks is compiled if it would have 100,000 tasks or fewer with the program of
    the middle rank, the first one or the last one on all ranks.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    size = spec.machine.n_ranks
    if not needs_all_ranks(spec):
        programs = (compile_plan(spec, rank=rank) for rank in (size // 2, 0, size - 1))
        if all(size * program.n_tasks > registry.VERIFY_LIMIT for program in programs):
            return
    compile_plan(spec)


def verify_plan(plan: Plan) -> None:
    """Prove that a plan computes its collective, as reproducibly as this asks for.

    See `collplan.planner.verify.verify` for what is proved of all plans. If a collective asks for
    results that are reproducible between runs, the plan must also combine every element as the
    plan of the same spec without segments, slices, blocks of algorithms and unequal shares. This
    plan depends on none of these sizes, so that no plan that passes does.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    from collplan.planner.verify import verify

    verify(plan)
    require_runs(plan)


def require_runs(plan: Plan) -> None:
    """Raise `IrreproducibleError` if a legal plan should be reproducible between runs and is not.

    Parameters
    ----------
    plan : Plan
        A plan that `collplan.planner.verify.verify` accepts.
    """
    if plan.spec is None or plan.spec.collective.level != "runs" or uncut(plan.spec) == plan.spec:
        return
    from collplan.planner.verify import results_of

    results = results_of(plan, has_trees=True)
    assert results is not None
    if (why := _beside_uncut(plan.spec, results)) is not None:
        raise _not_of_runs(why)


def _not_of_runs(why: str) -> IrreproducibleError:
    return IrreproducibleError(
        f"{why}: collective.reproducible is runs; leave out the passes, blocks or shares that cut "
        "the vector, or ask for ranks"
    )


def proved_level(plan: Plan) -> Reproducible | None:
    """Prove a plan as `verify_plan` does; return the strongest level of `reproducible` that holds.

    For plans of more than `VERIFY_LIMIT` tasks, the level that the collective asks for is returned,
    because to find a stronger one takes several times as long as the proof. The result is None if
    the plan names no collective that combines operands with an operation that rounds.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    from collplan.planner.verify import leaves_order_open, results_of

    if plan.n_tasks * plan.n_copies > registry.VERIFY_LIMIT:
        verify_plan(plan)
        return None if plan.spec is None else plan.spec.collective.level
    results = results_of(plan, has_trees=True)
    if plan.spec is None or results is None or results.trees is None:
        return None
    if leaves_order_open(plan):
        return "ranks"
    is_asked = plan.spec.collective.level == "runs"
    is_in_rank_tree = results.beside_rank_tree() is None
    if is_in_rank_tree and not is_asked:
        return "placements"
    why = _beside_uncut(plan.spec, results)
    if why is not None and is_asked:
        raise _not_of_runs(why)
    if why is not None:
        return "ranks"
    return "placements" if is_in_rank_tree else "runs"


def _beside_uncut(spec: PlanSpec, results: Results) -> str | None:
    """Return how a plan differs from that of its spec without sizes; None if trees are the same."""
    whole = uncut(spec)
    if whole == spec:
        return None
    from collplan.planner.verify import results_of

    is_folded = results.plan.folding is not None
    plan = compile_folded(whole) if is_folded else compile_plan(whole, is_proved=False)
    others = results_of(plan, has_trees=True)
    assert others is not None
    return results.beside(others)


def uncut(spec: PlanSpec) -> PlanSpec:
    """Return a spec without the sizes by which vectors are cut, which has the trees of all sizes.

    These are those of segments and slices, numbers of blocks, and shares other than equal ones.
    """
    passes = tuple(one for one in spec.passes if not find_pass(one.name).cuts)
    method = without_blocks(spec.method.replace(passes=passes))
    return spec.with_method(method)


def _list_idle(idle: list[str] | None, unchanged: list[PassChoice], spec: PlanSpec) -> None:
    """Append what the unchanged passes need to `idle`, for the passes that the spec names."""
    if idle is not None:
        idle += [find_pass(choice.name).idle for choice in unchanged if choice in spec.passes]


def _needed_ranks(spec: PlanSpec, rank: int | None) -> int | list[int] | None:
    """Return the ranks whose programs are compiled to obtain that of `rank`.

    These are `rank` itself, the ranks of its node, or None for all ranks.
    """
    localities = set()
    for choice in (*_transporting(spec.transport), *spec.passes):
        one = find_pass(choice.name)
        if one.level == "plan":
            localities.add(one.locality_of(choice))
    if rank is None or "global" in localities:
        return None
    return _ranks_beside(spec, rank) if "node" in localities else rank


def _ranks_beside(spec: PlanSpec, rank: int) -> list[int]:
    """Return the ranks of the node of a rank, including the rank itself."""
    place = spec.machine.rank_to_node
    return [other for other, node in enumerate(place) if node == place[rank]]


def needs_all_ranks(spec: PlanSpec) -> bool:
    """Return whether the program of one rank requires that the programs of all are compiled.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.
    """
    return _needed_ranks(spec, 0) is None


def compile_node(spec: PlanSpec, node: int) -> Plan:
    """Compile the programs of one node's ranks without those of other ranks.

    Parameters
    ----------
    spec : PlanSpec
    node : int
        A node that has ranks.

    Returns
    -------
    Plan
        The tasks of these ranks in the whole plan. Of a message to or from another node, it has
        only the send or the receive, so it cannot be verified or executed.

    Raises
    ------
    AlgorithmError
        As for `compile_plan`, or if the node has no ranks, or if a pass needs the ranks of all
        nodes.
    """
    check_choices(spec.passes)
    place = spec.machine.rank_to_node
    if node not in place:
        raise AlgorithmError(f"node: no rank is on node {node}; use {sorted(set(place))}")
    ranks = _ranks_beside(spec, place.index(node))
    sketched = draft(spec, only_ranks=np.array(ranks))
    blueprint, plan_passes = run_blueprint_passes(sketched, spec.passes)
    for choice in plan_passes:
        if find_pass(choice.name).locality_of(choice) == "global":
            raise AlgorithmError(
                f"passes.{choice.name}: it needs all ranks, this is one node's program; "
                "compile the whole plan"
            )
    plan = _transported(program_of(blueprint), ranks, is_proved=False)
    return run_passes(plan, plan_passes, is_proved=False)


def _ranks_on(spec: PlanSpec, nodes: Sequence[int]) -> Ints:
    """Return the ranks of some nodes."""
    return np.flatnonzero(np.isin(RankPlaces.of(spec.machine).node, nodes))


def count_messages(spec: PlanSpec) -> int:
    """Return a lower bound of the number of messages of a spec's plan, without compiling it.

    The bound counts the messages of algorithms with p² messages, and of alltoalls of equal blocks
    through shared memory. All other algorithms count as 0.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.
    """
    return program_of(run_blueprint_passes(draft(spec), spec.passes)[0]).least_messages


def compile_folded(
    spec: PlanSpec, idle: list[str] | None = None, *, is_proved: bool = True
) -> Plan:
    """Compile a spec whose plan is the same on all nodes into the programs of one node.

    Parameters
    ----------
    spec : PlanSpec
    idle : list of str, optional
        As for `compile_plan`.
    is_proved : bool
        Whether node 0 is compared with several nodes; for estimates of cost, one is enough.

    Returns
    -------
    Plan
        A folded plan (see `planner.rewrite.fold`). `compile_plan` returns that of all ranks.

    Raises
    ------
    AsymmetricError
        If nodes differ. The message names the difference.
    AlgorithmError
        As for `compile_plan`.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 1024, "ranks_per_node": 2},
    ...     "collective": {"kind": "allreduce", "count": 2048}, "algorithms": "ring",
    ... })
    >>> plan = compile_folded(spec)
    >>> plan.n_copies, plan.n_ranks, plan.n_tasks
    (1024, 2, 20470)
    """
    check_choices(spec.passes)
    unchanged: list[PassChoice] = []
    # Node 0, and the nodes onto which the generators of a motion may map it.
    nodes = [0, *(1 << bit for bit in range((spec.machine.nodes - 1).bit_length()))]
    drafted = draft(spec, only_ranks=_ranks_on(spec, nodes))
    blueprint, choices = run_blueprint_passes(drafted, spec.passes, unchanged)
    program = program_of(blueprint)
    motion = (folding := folding_of(program)).motion
    if len(program.parts) > 1 and Symmetries().divides_what_moves(program, nodes[-1]):
        raise AsymmetricError("fold: a phase divides a vector whose chunks move in another phase")
    of_node, of_all = _split_passes(choices)

    def programs(node: int, unchanged: list[PassChoice] | None = None) -> Plan:
        ranks = range(node * motion.step, (node + 1) * motion.step)
        plan = _transported(program, ranks, is_proved=False)
        return fold(run_passes(plan, of_node, is_proved=False, idle=unchanged), folding)

    plan = programs(0, unchanged)
    if len(program.parts) > 1 or blueprint.slices:  # is their combination symmetric, too?
        for node in motion.generators if is_proved else motion.generators[-1:]:
            require_copy(plan, programs(node))
    plan = run_passes(plan, of_all, is_proved=False, idle=unchanged)
    _list_idle(idle, unchanged, spec)
    return plan


def without_native(plan: Plan) -> Plan:
    """Return a plan without calls of MPI's own collectives, for estimates of cost.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Plan
        A plan of the same spec, in which MPICH's default algorithms replace the calls, or `plan`
        itself if it has no calls.

    Raises
    ------
    AlgorithmError
        If the plan has calls but names no spec.
    """
    if not has_calls(plan):
        return plan
    if plan.spec is None:
        raise AlgorithmError(
            "the plan calls MPI's own collectives, and names no spec by which they could be priced"
        )
    return compile_plan(priced_spec(plan.spec), is_proved=False)


def unfold(plan: Plan) -> Plan:
    """Return the plan of all ranks that a folded plan represents.

    A folded plan determines the operations of every node, but not all locations of their data: an
    extent of all chunks may move with the node or stay, runs of chunks wrap around at some nodes,
    and the order of the rows of different nodes follows from the rounds of each component.
    Therefore, the plan of all ranks is compiled from the spec and compared with the folded plan,
    node by node.

    Parameters
    ----------
    plan : Plan
        A folded plan. A plan that is not folded is returned unchanged.

    Returns
    -------
    Plan
        The plan that `compile_plan` returns for the plan's spec, with the same bytes. Every rank
        of every node has the same operations in the same order as the corresponding rank of the
        folded plan, with the peers, tags, lanes, sizes and hazards onto which the motion maps
        those of node 0.

    Raises
    ------
    AlgorithmError
        If the plan names no spec.
    MemoryLimitError
        If the plan of all ranks does not fit into memory.
    AsymmetricError
        If the tasks of a node differ from the folded plan, for example because the folded plan
        was changed after it was compiled.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 4, "ranks_per_node": 2},
    ...     "collective": {"kind": "allreduce", "count": 8}, "algorithms": "ring",
    ... })
    >>> folded = compile_folded(spec)
    >>> folded.n_tasks, folded.n_copies, unfold(folded).n_tasks
    (70, 4, 280)
    """
    if plan.folding is None:
        return plan
    if plan.spec is None:
        raise AlgorithmError("unfold: the plan names no spec that could be compiled for all ranks")
    require_memory(plan.n_tasks * plan.n_copies * BYTES_PER_TASK)
    whole = compile_plan(plan.spec, is_proved=False)
    require_copies(plan, whole)
    return whole


def _split_passes(choices: Sequence[PassChoice]) -> tuple[list[PassChoice], list[PassChoice]]:
    """Return the passes that run on one node's programs, and those that run on a folded plan.

    The latter begin with the first pass that needs all ranks.
    """
    is_global = [find_pass(choice.name).locality_of(choice) == "global" for choice in choices]
    n_local = (*is_global, True).index(True)
    for choice in choices[n_local:]:
        if not find_pass(choice.name).takes_folded:
            raise AsymmetricError(f"fold: passes.{choice.name} rewrites the tasks of all ranks")
    return list(choices[:n_local]), list(choices[n_local:])


def _transporting(transport: Transport) -> tuple[PassChoice, ...]:
    """Return the pass that implements a transport, if it needs one."""
    roles = transport.shared_roles
    if roles is None:
        return (PassChoice(name="share"),)
    return (PassChoice(name="share", options={"roles": roles}),) if roles else ()


def _transported(program: Program, ranks: int | Sequence[int] | None, *, is_proved: bool) -> Plan:
    """Build the plan of all ranks, or the programs of some, and apply the transport's pass.

    If ranks share memory, dependencies are derived after the pass has changed what tasks access.
    """
    sharing = _transporting(program.blueprint.spec.transport)
    built = _build(program, ranks, has_hazards=not sharing)
    plan = run_passes(built, sharing, is_proved=is_proved)
    return with_hazards(built) if sharing and plan is built else plan


def _build(program: Program, ranks: int | Sequence[int] | None, *, has_hazards: bool) -> Plan:
    """Build the plan of all ranks, the programs of several ranks, or the program of one rank."""
    blueprint = program.blueprint
    tables = program.tables([ranks] if isinstance(ranks, int) else ranks)
    # A message is a send and a receive, which each may be a part of the ranks' programs.
    n_tasks = (2 if ranks is None else 1) * len(tables.messages.phase) + len(tables.steps.rank)
    require_memory(n_tasks * BYTES_PER_TASK)
    return build(tables, blueprint.binding, blueprint.spec, ranks, has_hazards=has_hazards)
