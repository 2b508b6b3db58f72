"""Compilation of the programs of some ranks or of all, and what other ranks it takes.

Nothing here proves plans, except after each pass where it is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.build import build
from collplan.planner.lowering.program import Program, program_of
from collplan.planner.lowering.select import priced_spec
from collplan.planner.memory import require_memory
from collplan.planner.passes import find_pass, run_blueprint_passes, run_passes
from collplan.planner.passes.registry import check_choices
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.calls import has_calls
from collplan.planner.rewrite.rebuild import with_hazards
from collplan.specs import PassChoice, PlanSpec, Transport

BYTES_PER_TASK: Final = 400
"""Peak memory of compiling the plan of all ranks, in bytes per task."""


def compile_ranks(
    spec: PlanSpec,
    ranks: int | list[int] | None,
    unchanged: list[PassChoice] | None = None,
    *,
    is_proved: bool = False,
) -> Plan:
    """Compile the programs of some ranks.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`, with valid passes.
    ranks : int, list of int or None
        Rank or ranks; None for all.
    unchanged : list of PassChoice, optional
        Takes the passes that change nothing.
    is_proved : bool
        Whether the plan is verified after each pass that changes it.
    """
    sketched = draft(spec, only_ranks=None if ranks is None else np.atleast_1d(ranks))
    blueprint, plan_passes = run_blueprint_passes(sketched, spec.passes, unchanged)
    plan = transported(program_of(blueprint), ranks, is_proved=is_proved)
    return run_passes(plan, plan_passes, is_proved=is_proved, idle=unchanged)


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
    plan = transported(program_of(blueprint), ranks, is_proved=False)
    return run_passes(plan, plan_passes, is_proved=False)


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
    return compile_ranks(priced_spec(plan.spec), None)


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


def needed_ranks(spec: PlanSpec, rank: int | None) -> int | list[int] | None:
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


def needs_all_ranks(spec: PlanSpec) -> bool:
    """Return whether the program of one rank requires that the programs of all are compiled.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.
    """
    return needed_ranks(spec, 0) is None


def _ranks_beside(spec: PlanSpec, rank: int) -> list[int]:
    """Return the ranks of the node of a rank, including the rank itself."""
    place = spec.machine.rank_to_node
    return [other for other, node in enumerate(place) if node == place[rank]]


def list_idle(idle: list[str] | None, unchanged: list[PassChoice], spec: PlanSpec) -> None:
    """Append what the unchanged passes need to `idle`, for the passes that the spec names."""
    if idle is not None:
        idle += [find_pass(choice.name).idle for choice in unchanged if choice in spec.passes]


def _transporting(transport: Transport) -> tuple[PassChoice, ...]:
    """Return the pass that implements a transport, if it needs one."""
    roles = transport.shared_roles
    if roles is None:
        return (PassChoice(name="share"),)
    return (PassChoice(name="share", options={"roles": roles}),) if roles else ()


def transported(program: Program, ranks: int | Sequence[int] | None, *, is_proved: bool) -> Plan:
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
