"""Predictions by the cost model: plans worth a trial on ranks that no sweep speaks for."""

from __future__ import annotations

from math import log
from typing import Final

from collplan.select.auto import candidates
from collplan.select.candidates import SHARED
from collplan.specs import Collective, CollplanError, Decomposition, PlanSpec
from collplan.specs.request import FLAT, MESSAGES
from collplan.tune.sweep import Choice, Placement
from collplan.tune.table import TuningTable

MOST: Final = 3
"""Most plans of a prediction."""


def predict(
    table: TuningTable, placement: Placement, collective: Collective, n_bytes: int
) -> list[Choice]:
    """Return the plans that may be the fastest on a placement, the best by the model first.

    The cost model's best on the table's machine; the same decomposition through memory that
    ranks of a node share, or, where they share none, the model's best of another
    decomposition; and what wins in the sweep of the nearest number of ranks.

    Parameters
    ----------
    table : TuningTable
        Its network is what the model computes with.
    placement : Placement
        Where the ranks are.
    collective : Collective
        With its count.
    n_bytes : int
        Of MPI's count.

    Returns
    -------
    list of Choice
        At most `MOST`, all different; whether they can be compiled shows later.

    Raises
    ------
    CollplanError
        If the placement or the collective does not fit the machine.
    """
    machine = table.machine(placement)
    spec = PlanSpec(
        machine=machine, collective=collective, decomposition=Decomposition(name="auto")
    )
    found = [candidate.spec for candidate in candidates(spec)]
    best = found[0]
    choices = [Choice.of(best)]
    is_shared = best.transport != MESSAGES
    if collective.has_data and max(placement.ranks_per_node) > 1 and not is_shared:
        choices.append(Choice(decomposition=_led(found).decomposition, transport=SHARED))
    else:
        others = [one for one in found if _family(one) != _family(best)]
        choices += [Choice.of(one) for one in others[:1]]
    op_commutes = None if collective.op is None else collective.op.commutative
    sweeps = table.sweeps_of(collective.kind, op_commutes)
    if sweeps:
        nearest = min(sweeps, key=lambda sweep: abs(log(sweep.ranks / placement.n_ranks)))
        choices.append(nearest.choices[nearest.winner_at(n_bytes)])
    unique = {choice.label: choice for choice in choices if _fits(choice, spec)}
    return list(unique.values())


def _led(found: list[PlanSpec]) -> PlanSpec:
    """Return the best spec that leads through nodes, where there are several; else the best."""
    if found[0].machine.nodes == 1:
        return found[0].replace(decomposition=FLAT)
    names = "hierarchical", "multi_leader", "full_lane"
    led = (one for one in found if one.decomposition.name in names)
    return next(led, found[0])


def _family(spec: PlanSpec) -> tuple[str, bool]:
    return spec.decomposition.name, spec.transport == MESSAGES


def _fits(choice: Choice, spec: PlanSpec) -> bool:
    """Return whether a choice is a plan, and can be asked for on the machine of a spec."""
    if choice.native:
        return False
    try:
        choice.plan_spec(spec.machine, spec.collective)
    except CollplanError:
        return False
    return True
