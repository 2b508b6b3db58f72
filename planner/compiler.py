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
from planner.plan import Plan
from planner.restriction import restrict
from specs import PlanSpec


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
    parts = state(blueprint)
    if rank is not None and any(
        find_pass(choice.name).locality != "rank" for choice in plan_passes
    ):
        # Such passes must see every rank.
        return restrict(run_passes(_build(blueprint, parts, None), plan_passes), rank)
    return run_passes(_build(blueprint, parts, rank), plan_passes)


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
