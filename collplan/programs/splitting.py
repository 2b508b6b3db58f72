"""Number of tree levels that a rank runs on its own core while it computes.

The messages of a plan do not depend on the number of levels that are split off. Therefore ranks
need not agree on it.

References
----------
Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and dedicated
cores for overlapping MPI nonblocking collectives on manycore processor, 2019, section 6.2.
"""

from __future__ import annotations

from typing import Final

from collplan.planner.passes.progress.split_tree import leaf_phases
from collplan.planner.passes.progress.tree_model import best_levels, shapes_of
from collplan.planner.plan.phases import DOWN, UP
from collplan.planner.plan.plan import Plan
from collplan.specs import PassChoice, PlanSpec

KINDS: Final = ("bcast", "reduce", "allreduce")
"""Collectives whose trees are split."""
LONGEST_HEAD_S: Final = 0.1
"""Longest time that a start spends on levels of the tree."""
HEAD_SLACK: Final = 2.0
"""Factor by which these may take longer than the model says, before the start returns."""


def split_for(plan: Plan, spec: PlanSpec, n_spare: int, computation_s: float) -> PlanSpec | None:
    """Return the spec of a plan whose trees are split beside a computation; None if none is.

    Parameters
    ----------
    plan : Plan
        One rank's program, or the plan of all ranks.
    spec : PlanSpec
        Spec of the plan. Levels that it splits off itself do not change.
    n_spare : int
        Number of communication cores per node.
    computation_s : float
        Time in seconds for which ranks compute between start and wait.
    """
    if computation_s <= 0 or not may_split(plan, spec, n_spare):
        return None
    size, radix = _largest_tree(plan)
    shapes = shapes_of(spec.collective.planned_kind, radix)
    computing = computation_s / _transfer_s(spec)
    levels = int(best_levels(size, size + n_spare, *shapes, computing=computing))
    return with_split(spec, n_spare, levels) if levels else None


def may_split(plan: Plan, spec: PlanSpec, n_spare: int) -> bool:
    """Return whether some computation may make `split_for` split the trees of a plan."""
    if spec.collective.planned_kind not in KINDS or n_spare == 0 or split_levels(spec):
        return False
    size, radix = _largest_tree(plan)
    return size >= 2 and radix > 0


def times_on_own_core(spec: PlanSpec, computation_s: float | None) -> tuple[float, float]:
    """Return how long a rank's own core works on a plan in a start, and is kept for its wait.

    If the passes of the spec split off levels of a tree, a start may work on them for a limited
    time, which follows from the cost model. After this time, the start returns, and the tasks
    continue in the background, so that a start does not wait for other ranks. Or the levels are
    held until a wait, or until the computation should have ended, because other ranks may need
    them.

    Parameters
    ----------
    spec : PlanSpec
        Spec of the plan.
    computation_s : float or None
        Time in seconds for which ranks compute between start and wait; None if it is unknown.

    Returns
    -------
    head_s, hold_s : float
        Times in seconds for tasks of the START stage inside a start, and after a start for which
        tasks of the WAIT stage are held; zeros if the spec splits off no levels.
    """
    levels = split_levels(spec)
    if computation_s is None or levels == 0:
        return 0.0, 0.0
    return min(LONGEST_HEAD_S, HEAD_SLACK * levels * _transfer_s(spec)), computation_s


def why_split(why: str, levels: int) -> str:
    """Return the reason in statistics for a plan with levels that were split off."""
    return f"{why}, {levels} levels on ranks' cores beside computation"


def split_levels(spec: PlanSpec) -> int:
    """Return the number of levels that a spec's passes split off; 0 if none, or if not given."""
    for choice in spec.passes:
        levels = choice.options.get("levels") if choice.name == "split_tree" else None
        if isinstance(levels, int):
            return levels
    return 0


def with_split(spec: PlanSpec, n_spare: int, levels: int) -> PlanSpec:
    """Return a spec whose trees are split, on nodes with communication cores."""
    choice = PassChoice(name="split_tree", options={"levels": levels})
    return with_cores(spec, n_spare).replace(passes=(choice, *spec.passes))


def with_cores(spec: PlanSpec, n_spare: int) -> PlanSpec:
    """Return a spec for nodes that have communication cores in addition to those of the ranks."""
    cores = max(spec.machine.node_to_n_ranks) + n_spare
    return spec.replace(machine=spec.machine.replace(cores=cores))


def _largest_tree(plan: Plan) -> tuple[int, int]:
    return max(_leaf_tree(plan, way) for way in (UP, DOWN))


def _leaf_tree(plan: Plan, way: int) -> tuple[int, int]:
    """Return the ranks and the radix of the largest tree that is split; zeros if there is none.

    Trees between nodes are not split, as their transfers keep the network busy and not cores.
    """
    found = (0, 0)
    for phase, is_leaf in zip(plan.phases, leaf_phases(plan.phases, way), strict=True):
        for trees in phase.trees if is_leaf else ():
            if len({int(node) for node in plan.rank_node[list(trees.groups[0])]}) == 1:
                found = max(found, (trees.size, phase.radix))
    return found


def _transfer_s(spec: PlanSpec) -> float:
    """Return the time in seconds of one transfer of the collective's buffer by the cost model."""
    network = spec.machine.network
    link, n_bytes = network.numa, spec.collective.count * spec.collective.itemsize
    reduces = spec.collective.op is not None
    per_byte = link.G_ns_per_byte + link.O_ns_per_byte + reduces * network.reduce_ns_per_byte
    return 1e-9 * (link.L_ns + 2 * link.o_ns + n_bytes * per_byte)
