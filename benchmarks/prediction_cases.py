"""The candidates of the prediction benchmark."""

from __future__ import annotations

from typing import Final

from collplan.measure.guideline import OURS, standard_candidates
from collplan.planner.algorithms import registry
from collplan.select.candidates import MAP_RANKS, name_of, segmented
from collplan.specs import AlgorithmChoice, Decomposition, PlanSpec
from collplan.specs.request import AUTO, FLAT

SEGMENT: Final = 32 * 1024
"""Bytes of the segments in which algorithms that stream are measured, beside whole messages."""


def candidates_of(spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return a flat plan, as libraries have them, then hierarchical, full-lane and the best."""
    flat = spec.replace(decomposition=FLAT, algorithms=AUTO, passes=())
    ours = {name: one for name, one in standard_candidates(spec).items() if name in OURS}
    return {"flat": flat, **ours}


def flat_candidates_of(spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return all flat algorithms, whole and, where segments pay, in segments."""
    kind, n_ranks = spec.collective.planned_kind, spec.machine.n_ranks
    n_bytes = spec.collective.count * spec.collective.itemsize
    found = {}
    for one in registry.legal(kind, n_ranks, spec.collective.is_commutative):
        choice = AlgorithmChoice(name=one.name)
        plain = spec.replace(decomposition=FLAT, algorithms=choice, passes=())
        found[one.name] = plain
        if one.streams and n_bytes > SEGMENT:
            found[f"{one.name} {SEGMENT // 1024}KiB"] = plain.replace(passes=segmented(SEGMENT))
    return found


def network_candidates_of(spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return flat algorithms in rank order and mapped, and decompositions by node and by switch."""
    found = {}
    for name in NETWORK_FLAT[spec.collective.planned_kind]:
        plain = spec.replace(decomposition=FLAT, algorithms=AlgorithmChoice(name=name), passes=())
        found[name] = plain
        found[f"{name} mapped"] = plain.replace(passes=(MAP_RANKS,))
    for name in ("hierarchical", "full_lane"):
        by_node = Decomposition(name=name)
        by_switch = Decomposition(name=name, by="switch")
        nested = by_switch.replace(node=by_node)
        for one in (by_node, by_switch, nested):
            plan = spec.replace(decomposition=one, algorithms=AUTO, passes=())
            found[name_of(one)] = plan
    return found


NETWORK_FLAT: Final = {
    "allreduce": ("recursive_doubling", "rabenseifner", "ring"),
    "allgather": ("recursive_doubling", "bruck", "ring"),
    "bcast": ("binomial", "chain", "scatter_allgather"),
}
"""The flat algorithms of the candidates on a topology, by kind."""
CANDIDATES: Final = {
    "plans": candidates_of,
    "flat": flat_candidates_of,
    "network": network_candidates_of,
}
"""Sets of candidates by name."""
