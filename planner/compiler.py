"""From a spec to a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.blueprint import Blueprint
from planner.builder import Placement, build
from planner.choice import state
from planner.choosing.auto import resolve
from planner.decompose import draft, is_commutative
from planner.errors import AlgorithmError
from planner.exchange.design import Exchange
from planner.exchange.tables import PHASES, exchange_tables
from planner.lowering import Stated, lower
from planner.passes import find_pass, run_blueprint_passes, run_passes
from planner.passes.registry import check_options, run_pass
from planner.passes.share import share_programs
from planner.plan import Plan
from planner.restriction import restrict
from specs import PassChoice, PlanSpec, Transport


def compile_plan(spec: PlanSpec, *, rank: int | None = None) -> Plan:
    """Compile a spec into the task graph it describes.

    Parameters
    ----------
    spec : PlanSpec
        Machine, collective, decomposition, algorithms and passes.
    rank : int, optional
        Compile this rank's program only: the rows the whole plan has for it,
        in the same order, without ever holding the whole plan in memory,
        unless a pass must see it: then rank 0, and no other, verifies the
        whole. Otherwise a program has no proof of its own.

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
    >>> from specs import PlanSpec
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
    spec = resolve(spec)
    blueprint, plan_passes = run_blueprint_passes(draft(spec), spec.passes)
    plan_passes = _transporting(spec.transport) + plan_passes
    parts = state(blueprint)
    localities = [find_pass(choice.name).locality_of(choice) for choice in plan_passes]
    if rank is None or "global" in localities:
        # Such passes must see every rank.
        plan = _build(blueprint, parts, None)
        # Where all ranks compile their programs, one proof of the plan is enough for all.
        plan = run_passes(plan, plan_passes, is_proved=rank in (None, 0))
        return plan if rank is None else restrict(plan, rank)
    if blueprint.exchange is not None or "node" in localities:
        return restrict(_compile_node(blueprint, parts, plan_passes, rank), rank)
    return run_passes(_build(blueprint, parts, rank), plan_passes)


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
    spec = resolve(spec)
    place = spec.machine.rank_to_node
    if node not in place:
        raise AlgorithmError(f"node: no rank is on node {node}; use {sorted(set(place))}")
    blueprint, plan_passes = run_blueprint_passes(draft(spec), spec.passes)
    plan_passes = _transporting(spec.transport) + plan_passes
    for choice in plan_passes:
        if find_pass(choice.name).locality_of(choice) == "global":
            raise AlgorithmError(
                f"passes.{choice.name}: it needs all ranks, this is one node's program; "
                "compile the whole plan"
            )
    return _compile_node(blueprint, state(blueprint), plan_passes, place.index(node))


def _transporting(transport: Transport) -> tuple[PassChoice, ...]:
    """Return the pass a transport stands for."""
    roles = transport.shared_roles
    if roles is None:
        return (PassChoice(name="share"),)
    return (PassChoice(name="share", options={"roles": roles}),) if roles else ()


def _compile_node(
    blueprint: Blueprint, parts: Sequence[Stated], choices: Sequence[PassChoice], rank: int
) -> Plan:
    """Compile the programs of a rank's node where passes must see that, but no more."""
    if blueprint.exchange is not None:
        programs = [_build_exchange(blueprint, blueprint.exchange, rank)]
    else:
        place = blueprint.spec.machine.rank_to_node
        neighbours = [other for other, node in enumerate(place) if node == place[rank]]
        programs = [_build(blueprint, parts, other) for other in neighbours]
    for choice in choices:
        if find_pass(choice.name).locality == "rank":
            programs = [run_pass(program, choice) for program in programs]
        elif choice.name == "share":
            check_options(find_pass(choice.name), choice)
            programs = [share_programs(programs, **choice.options)]
        else:
            # Put together, but with the messages they have.
            node = programs[0] if len(programs) == 1 else share_programs(programs, roles=())
            programs = [run_pass(node, choice)]
    return programs[0] if len(programs) == 1 else share_programs(programs, roles=())


def _build(blueprint: Blueprint, parts: Sequence[Stated], rank: int | None) -> Plan:
    if blueprint.exchange is not None:
        return _build_exchange(blueprint, blueprint.exchange, rank)
    spec, binding = blueprint.spec, blueprint.binding
    messages, steps, scratch_sizes = lower(
        parts, spec.machine.n_ranks, blueprint.n_scratch, is_commutative(spec), only_rank=rank
    )
    return build(
        messages,
        steps,
        Placement.of(spec.machine),
        np.column_stack((binding.send_sizes, binding.recv_sizes, scratch_sizes)),
        spec,
        phases=[part.label for part in parts],
        only_rank=rank,
    )


def _build_exchange(blueprint: Blueprint, exchange: Exchange, rank: int | None) -> Plan:
    """Build the plan of an exchange, for all ranks or those of one rank's node."""
    spec, binding = blueprint.spec, blueprint.binding
    placement = Placement.of(spec.machine)
    messages, copies, shared_sizes = exchange_tables(
        exchange, placement.node, placement.n_nodes, rank
    )
    sizes = (binding.send_sizes, binding.recv_sizes, np.zeros_like(binding.send_sizes))
    return build(
        messages,
        copies,
        placement,
        np.column_stack(sizes),
        spec,
        phases=PHASES,
        only_node=None if rank is None else int(placement.node[rank]),
        shared_sizes=shared_sizes,
    )
