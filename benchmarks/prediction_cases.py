"""The candidates of the prediction benchmark."""

from __future__ import annotations

from collplan.measure.guideline import OURS, standard_candidates
from collplan.specs import PlanSpec
from collplan.specs.request import AUTO, FLAT


def candidates_of(spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return a flat plan, as libraries have them, then hierarchical, full-lane and the best."""
    flat = spec.replace(decomposition=FLAT, algorithms=AUTO, passes=())
    ours = {name: one for name, one in standard_candidates(spec).items() if name in OURS}
    return {"flat": flat, **ours}
