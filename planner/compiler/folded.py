"""Compilation of the programs of one node, which stand for those of all nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.compiler.ranks import (
    BYTES_PER_TASK,
    compile_ranks,
    list_idle,
    transported,
)
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.lowering.program import program_of
from collplan.planner.lowering.symmetry import Symmetries, folding_of
from collplan.planner.memory import require_memory
from collplan.planner.passes import find_pass, run_blueprint_passes, run_passes
from collplan.planner.passes.registry import check_choices
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.fold import fold, require_copy
from collplan.planner.rewrite.unfold import require_copies
from collplan.specs import PassChoice, PlanSpec
from collplan.specs.syntax.calling import explains_calls


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
        plan = transported(program, ranks, is_proved=False)
        return fold(run_passes(plan, of_node, is_proved=False, idle=unchanged), folding)

    plan = programs(0, unchanged)
    if len(program.parts) > 1 or blueprint.slices:  # is their combination symmetric, too?
        for node in motion.generators if is_proved else motion.generators[-1:]:
            require_copy(plan, programs(node))
    plan = run_passes(plan, of_all, is_proved=False, idle=unchanged)
    list_idle(idle, unchanged, spec)
    return plan


@explains_calls("unfold")
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
    whole = compile_ranks(plan.spec, None)
    require_copies(plan, whole)
    return whole


def _ranks_on(spec: PlanSpec, nodes: Sequence[int]) -> Ints:
    """Return the ranks of some nodes."""
    return np.flatnonzero(np.isin(RankPlaces.of(spec.machine).node, nodes))


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
