"""From a spec to a plan."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.lowering.build import Placement, build
from collplan.planner.lowering.program import Program, program_of
from collplan.planner.lowering.symmetry import folding_of
from collplan.planner.passes import find_pass, run_blueprint_passes, run_passes
from collplan.planner.passes.registry import check_choices, run_pass
from collplan.planner.passes.shared_memory.share import share_programs
from collplan.planner.plan.fold import fold, require_copy
from collplan.planner.plan.plan import Plan
from collplan.planner.plan.rank_program import restrict
from collplan.specs import PassChoice, PlanSpec, Transport


def compile_plan(
    spec: PlanSpec,
    *,
    rank: int | None = None,
    idle: list[str] | None = None,
    is_proved: bool = True,
) -> Plan:
    """Compile a spec into the task graph it describes.

    Parameters
    ----------
    spec : PlanSpec
        Any spec but one of decomposition ``auto``, which `collplan.compile` resolves.
    rank : int, optional
        Compile this rank's program only: its rows of the whole plan, which is not held in
        memory unless a pass must see it: then rank 0 alone verifies the whole.
    idle : list of str, optional
        Takes a line for every pass of the spec that changes nothing: what it needs.
    is_proved : bool
        Whether what passes make is verified; plans that are only priced can do without.

    Returns
    -------
    Plan
        The same bytes for the same spec, on any machine.

    Raises
    ------
    AlgorithmError
        If an algorithm is unknown or cannot serve these ranks or operation,
        or a decomposition or pass refuses; the message names alternatives.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"ranks_per_node": 4},
    ...     "collective": {"kind": "allreduce", "count": 8},
    ...     "algorithms": "ring",
    ... })
    >>> plan = compile_plan(spec)
    >>> plan.n_tasks, compile_plan(spec, rank=2).n_tasks
    (60, 15)
    """
    size = spec.machine.n_ranks
    if rank is not None and not 0 <= rank < size:
        raise AlgorithmError(f"rank: {rank} is not one of the machine's {size} ranks")
    check_choices(spec.passes)
    unchanged: list[PassChoice] = []
    blueprint, plan_passes = run_blueprint_passes(
        draft(spec, only_ranks=_needed_ranks(spec, rank)), spec.passes, unchanged
    )
    # Where all ranks compile their programs, one proof of the plan is enough for all.
    is_proved = is_proved and rank in (None, 0)
    program, choices = program_of(blueprint), _transporting(spec.transport) + plan_passes
    plan = _compile(program, choices, rank, unchanged, is_proved=is_proved)
    if idle is not None:
        idle += [find_pass(choice.name).idle for choice in unchanged if choice in spec.passes]
    return plan


def _compile(
    program: Program,
    plan_passes: tuple[PassChoice, ...],
    rank: int | None,
    unchanged: list[PassChoice],
    *,
    is_proved: bool,
) -> Plan:
    """Build the plan, or a rank's program; run its passes, and list those that change nothing."""
    localities = {find_pass(choice.name).locality_of(choice) for choice in plan_passes}
    localities.add(program.locality)
    if rank is None or "global" in localities:
        # Such passes must see every rank.
        plan = _build(program, None)
        plan = run_passes(plan, plan_passes, is_proved=is_proved, idle=unchanged)
        return plan if rank is None else restrict(plan, rank)
    if "node" in localities:
        return restrict(_compile_node(program, plan_passes, rank, unchanged), rank)
    return run_passes(_build(program, rank), plan_passes, idle=unchanged)


def _needed_ranks(spec: PlanSpec, rank: int | None) -> Ints | None:
    """Return the ranks that one rank's program depends on, None for all of them."""
    if rank is None or needs_all_ranks(spec):
        return None
    choices = [*_transporting(spec.transport), *spec.passes]
    if all(find_pass(choice.name).locality_of(choice) == "rank" for choice in choices):
        return np.array([rank])
    node = Placement.of(spec.machine).node
    return np.flatnonzero(node == node[rank])


def needs_all_ranks(spec: PlanSpec) -> bool:
    """Return whether one rank's program can only be had by compiling the programs of all.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.
    """
    choices = [(choice, find_pass(choice.name)) for choice in spec.passes]
    return any(
        one.level == "plan" and one.locality_of(choice) == "global" for choice, one in choices
    )


def compile_node(spec: PlanSpec, node: int) -> Plan:
    """Compile the programs of one node's ranks, without holding the others'.

    Parameters
    ----------
    spec : PlanSpec
    node : int
        A node that has ranks.

    Returns
    -------
    Plan
        The whole plan's tasks of these ranks, messages with one end here. It
        cannot be proved or run.

    Raises
    ------
    AlgorithmError
        As `compile_plan`, or if the node has no ranks, or a pass must see
        those of other nodes.
    """
    check_choices(spec.passes)
    place = spec.machine.rank_to_node
    if node not in place:
        raise AlgorithmError(f"node: no rank is on node {node}; use {sorted(set(place))}")
    only = np.flatnonzero(np.array(place) == node)
    blueprint, plan_passes = run_blueprint_passes(draft(spec, only_ranks=only), spec.passes)
    plan_passes = _transporting(spec.transport) + plan_passes
    for choice in plan_passes:
        if find_pass(choice.name).locality_of(choice) == "global":
            raise AlgorithmError(
                f"passes.{choice.name}: it needs all ranks, this is one node's program; "
                "compile the whole plan"
            )
    return _compile_node(program_of(blueprint), plan_passes, place.index(node), [])


def count_messages(spec: PlanSpec) -> int:
    """Return a lower bound of the messages of a spec's plan, without compiling it.

    Of algorithms with p² messages these are known; all others count as 0.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.
    """
    return program_of(run_blueprint_passes(draft(spec), spec.passes)[0]).least_messages


def compile_folded(spec: PlanSpec, idle: list[str] | None = None) -> Plan:
    """Compile a spec whose plan is the same on all nodes into the programs of one node.

    Parameters
    ----------
    spec : PlanSpec
    idle : list of str, optional
        As of `compile_plan`.

    Returns
    -------
    Plan
        A folded plan: see `collplan.planner.plan.fold`. `compile_plan` gives the unfolded one.

    Raises
    ------
    AsymmetricError
        If nodes differ; the message says in what.
    AlgorithmError
        As `compile_plan`.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 1024, "ranks_per_node": 2},
    ...     "collective": {"kind": "allreduce", "count": 2048},
    ...     "algorithms": "ring",
    ... })
    >>> plan = compile_folded(spec)
    >>> plan.n_copies, plan.n_ranks, plan.n_tasks
    (1024, 2, 20470)
    """
    check_choices(spec.passes)
    unchanged: list[PassChoice] = []
    # Node 0, and those onto which motions may map it first.
    nodes = [0, *(1 << bit for bit in range((spec.machine.nodes - 1).bit_length()))]
    only = np.flatnonzero(np.isin(Placement.of(spec.machine).node, nodes))
    sketched = draft(spec, only_ranks=only)
    blueprint, choices = run_blueprint_passes(sketched, spec.passes, unchanged)
    program = program_of(blueprint)
    folding = folding_of(program)
    motion = folding.motion
    of_node, of_all = _split_passes(_transporting(spec.transport) + choices)

    def programs(node: int) -> Plan:
        ranks = range(node * motion.step, (node + 1) * motion.step)
        tables, seen = program.tables(ranks), unchanged if node == 0 else None
        plan = build(tables, blueprint.binding, spec, only_rank=ranks[0], locality="node")
        return fold(run_passes(plan, of_node, is_proved=False, idle=seen), folding)

    plan = programs(0)
    if len(program.parts) > 1:
        # Each component is symmetric by itself; here it is seen that they are together.
        for node in motion.generators:
            require_copy(plan, programs(node))
    plan = run_passes(plan, of_all, is_proved=False, idle=unchanged)
    if idle is not None:
        idle += [find_pass(choice.name).idle for choice in unchanged if choice in spec.passes]
    return plan


def _split_passes(choices: Sequence[PassChoice]) -> tuple[list[PassChoice], list[PassChoice]]:
    """Return the passes that run on one node's programs, and those that run on a folded plan.

    The latter begin with the first pass that must see all ranks.
    """
    is_global = [find_pass(choice.name).locality_of(choice) == "global" for choice in choices]
    n_local = (*is_global, True).index(True)
    for choice in choices[n_local:]:
        if not find_pass(choice.name).takes_folded:
            raise AsymmetricError(f"fold: passes.{choice.name} rewrites the tasks of all ranks")
    return list(choices[:n_local]), list(choices[n_local:])


def _transporting(transport: Transport) -> tuple[PassChoice, ...]:
    """Return the pass a transport stands for."""
    roles = transport.shared_roles
    if roles is None:
        return (PassChoice(name="share"),)
    return (PassChoice(name="share", options={"roles": roles}),) if roles else ()


def _compile_node(
    program: Program,
    choices: Sequence[PassChoice],
    rank: int,
    unchanged: list[PassChoice],
) -> Plan:
    """Compile the programs of a rank's node where passes must see that, but no more."""
    place = program.blueprint.spec.machine.rank_to_node
    ranks = [rank]
    if program.locality == "rank":
        ranks = [other for other, node in enumerate(place) if node == place[rank]]
    programs = [_build(program, one) for one in ranks]
    for choice in choices:
        if find_pass(choice.name).locality == "rank":
            rewritten = [run_pass(one, choice) for one in programs]
            is_idle = all(map(operator.is_, programs, rewritten))
        elif choice.name == "share":
            rewritten = [share_programs(programs, **choice.options)]
            is_idle = rewritten[0] is programs[0] or not rewritten[0].shared_sizes.any()
        else:
            # Put together, but with the messages they have.
            node = programs[0] if len(programs) == 1 else share_programs(programs, roles=())
            rewritten = [run_pass(node, choice)]
            is_idle = rewritten[0] is node
        if is_idle:
            unchanged.append(choice)
        programs = rewritten
    return programs[0] if len(programs) == 1 else share_programs(programs, roles=())


def _build(program: Program, rank: int | None) -> Plan:
    """Build the plan of all ranks, or the least part of it that has a rank's tasks."""
    blueprint = program.blueprint
    return build(
        program.tables(None if rank is None else (rank,)),
        blueprint.binding,
        blueprint.spec,
        only_rank=rank,
        locality=program.locality,
    )
