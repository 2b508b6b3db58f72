"""Predictions by the cost model: plans to try for placements that no sweep covers."""

from __future__ import annotations

from math import log
from typing import Final

from collplan.select.candidates import SHARED
from collplan.select.search import search
from collplan.specs import Collective, CollplanError, Decomposition, PlanSpec
from collplan.specs.request import FLAT, MESSAGES
from collplan.tables.sweep import Choice, NodePlacement
from collplan.tables.table import TuningTable

MOST: Final = 3
"""Largest number of plans in a prediction."""


def predict(
    table: TuningTable, placement: NodePlacement, collective: Collective, n_bytes: int
) -> list[Choice]:
    """Return the plans that may be the fastest on a placement, the model's best plan first.

    The second plan is a shared-memory variant of the best decomposition through nodes or, if
    there is no such variant, the model's best plan of another family. The third plan is the
    winner of the sweep whose number of ranks is nearest.

    Parameters
    ----------
    table : TuningTable
        Table whose machine the cost model uses.
    placement : NodePlacement
        Placement of the ranks on nodes.
    collective : Collective
        Collective with its count.
    n_bytes : int
        Message size in bytes: of the vector or of one block.

    Returns
    -------
    list of Choice
        At most `MOST` distinct choices. Compilation may still refuse some of them.

    Raises
    ------
    CollplanError
        If the placement or the collective does not fit the machine.
    """
    machine = table.machine(placement)
    spec = PlanSpec(
        machine=machine, collective=collective, decomposition=Decomposition(name="auto")
    )
    by_cost = [one.spec for one in search(spec)]
    best = by_cost[0]
    choices = [Choice.of(best)]
    is_shared = best.transport != MESSAGES
    if collective.has_data and max(placement.ranks_per_node) > 1 and not is_shared:
        decomposition = _first_through_leaders(by_cost).decomposition
        choices.append(Choice(decomposition=decomposition, transport=SHARED))
    else:
        others = [one for one in by_cost if _family(one) != _family(best)]
        choices += [Choice.of(one) for one in others[:1]]
    op_commutes = None if collective.op is None else collective.op.commutative
    sweeps = table.sweeps_of(collective.kind, op_commutes)
    if sweeps:
        nearest = min(sweeps, key=lambda sweep: abs(log(sweep.ranks / placement.n_ranks)))
        choices.append(nearest.choices[nearest.winner_at(n_bytes)])
    unique = {choice.label: choice for choice in choices if _fits(choice, spec)}
    return list(unique.values())


def _first_through_leaders(specs: list[PlanSpec]) -> PlanSpec:
    """Return the first spec that works through leaders of nodes, or else the first spec.

    On a single node, the first spec is returned without its decomposition.
    """
    if specs[0].machine.nodes == 1:
        return specs[0].replace(decomposition=FLAT)
    names = "hierarchical", "multi_leader", "full_lane"
    through_leaders = (one for one in specs if one.decomposition.name in names)
    return next(through_leaders, specs[0])


def _family(spec: PlanSpec) -> tuple[str, bool]:
    return spec.decomposition.name, spec.transport == MESSAGES


def _fits(choice: Choice, spec: PlanSpec) -> bool:
    """Return whether a choice is a plan that is valid on the machine of a spec."""
    if choice.native:
        return False
    try:
        choice.plan_spec(spec.machine, spec.collective)
    except CollplanError:
        return False
    return True
