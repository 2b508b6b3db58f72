"""From a spec to a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.auto import resolve
from planner.blueprint import Blueprint
from planner.builder import Placement, build
from planner.choice import state
from planner.decompose import draft, is_commutative
from planner.errors import AlgorithmError
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
        unless a pass must see it.

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
    if rank is None:
        return run_passes(_build(blueprint, parts, None), plan_passes)
    localities = [find_pass(choice.name).locality for choice in plan_passes]
    if "global" in localities:
        # Such passes must see every rank.
        return restrict(run_passes(_build(blueprint, parts, None), plan_passes), rank)
    if "node" not in localities:
        return run_passes(_build(blueprint, parts, rank), plan_passes)
    return _compile_on_node(blueprint, parts, plan_passes, rank)


def _transporting(transport: Transport) -> tuple[PassChoice, ...]:
    """Return the pass a transport stands for."""
    roles = transport.shared_roles
    if roles is None:
        return (PassChoice(name="share"),)
    return (PassChoice(name="share", options={"roles": roles}),) if roles else ()


def _compile_on_node(
    blueprint: Blueprint, parts: Sequence[Stated], choices: Sequence[PassChoice], rank: int
) -> Plan:
    """Compile a rank's program where passes must see its node, but no more."""
    place = blueprint.spec.machine.rank_to_node
    neighbours = [other for other, node in enumerate(place) if node == place[rank]]
    programs = [_build(blueprint, parts, other) for other in neighbours]
    for number, choice in enumerate(choices):
        if find_pass(choice.name).locality == "rank":
            programs = [run_pass(program, choice) for program in programs]
            continue
        check_options(find_pass(choice.name), choice)
        node = share_programs(programs, **choice.options)
        for later in choices[number + 1 :]:
            node = run_pass(node, later)
        return restrict(node, rank)
    raise AssertionError("some pass must see the node")


def _build(blueprint: Blueprint, parts: Sequence[Stated], rank: int | None) -> Plan:
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
