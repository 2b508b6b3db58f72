"""Levels of trees on the ranks' own cores, by what a program computes beside its collectives.

The messages of a plan are the same however many levels are split off, so that no rank has to
know when another begins to.

References
----------
Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and dedicated
cores for overlapping MPI nonblocking collectives on manycore processor, 2019, section 6.2.
"""

from __future__ import annotations

from typing import Any, Final

from collplan.executors.mpi.binding.instances import LocalProgram
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
    """Return the spec of a plan whose trees are split beside a computation; None if not at all.

    Parameters
    ----------
    plan : Plan
        One rank's program, or the plan.
    spec : PlanSpec
        What it was compiled from. Levels that it splits off itself stay as they are.
    n_spare : int
        Communication cores of each node.
    computation_s : float
        What ranks compute between start and wait.
    """
    kind = spec.collective.planned_kind
    if kind not in KINDS or n_spare == 0 or computation_s <= 0 or split_levels(spec):
        return None
    size, radix = max(_leaf_tree(plan, way) for way in (UP, DOWN))
    if size < 2 or radix == 0:
        return None
    computing = computation_s / _transfer_s(spec)
    levels = int(best_levels(size, size + n_spare, *shapes_of(kind, radix), computing=computing))
    return with_split(spec, n_spare, levels) if levels else None


def program_of(plan: Plan, spec: PlanSpec, comm: Any, computation_s: float | None) -> LocalProgram:
    """Return this rank's program of a plan beside a computation.

    Levels that its passes split off keep a start as long as the model says, and are held for a
    wait as long as the computation takes.

    Parameters
    ----------
    plan : Plan
        This rank's.
    spec : PlanSpec
        What it was compiled from.
    comm : MPI.Intracomm
        For messages of such programs alone.
    computation_s : float or None
        What ranks compute between start and wait; None where nothing is known of it.

    Raises
    ------
    UnsupportedPlanError
        If ranks would have to meet for it.
    """
    levels = split_levels(spec)
    if computation_s is None or levels == 0:
        return LocalProgram(plan, comm)
    head_s = min(LONGEST_HEAD_S, HEAD_SLACK * levels * _transfer_s(spec))
    return LocalProgram(plan, comm, head_s, computation_s)


def split_levels(spec: PlanSpec) -> int:
    """Return how many levels of trees the passes of a spec split off; 0 if none, or unsaid."""
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
    """Return a spec for nodes with communication cores beside the ranks' own."""
    cores = max(spec.machine.node_to_n_ranks) + n_spare
    return spec.replace(machine=spec.machine.replace(cores=cores))


def _leaf_tree(plan: Plan, way: int) -> tuple[int, int]:
    """Return the ranks and the radix of the largest tree that is split; zeros if there is none.

    A tree between nodes is none: its transfers keep the network busy, not cores.
    """
    found = (0, 0)
    for phase, is_leaf in zip(plan.phases, leaf_phases(plan.phases, way), strict=True):
        for trees in phase.trees if is_leaf else ():
            if len({int(node) for node in plan.rank_node[list(trees.groups[0])]}) == 1:
                found = max(found, (trees.size, phase.radix))
    return found


def _transfer_s(spec: PlanSpec) -> float:
    """Return what a core spends on one transfer of the collective's buffer, by the cost model."""
    network = spec.machine.network
    link, n_bytes = network.numa, spec.collective.count * spec.collective.itemsize
    reduces = spec.collective.op is not None
    per_byte = link.G_ns_per_byte + link.O_ns_per_byte + reduces * network.reduce_ns_per_byte
    return 1e-9 * (link.L_ns + 2 * link.o_ns + n_bytes * per_byte)
