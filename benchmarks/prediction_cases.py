"""The candidates of the prediction benchmark."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from collplan.measure.guideline import OURS, standard_candidates
from collplan.planner.algorithms import registry
from collplan.select.candidates import MAP_RANKS, name_of, segmented, with_algorithms
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
    """Return flat algorithms in rank order and mapped, and decompositions by node and by switch.

    Those that stream come in segments, too.
    """
    found, kind = {}, spec.collective.planned_kind
    for name in NETWORK_FLAT[kind]:
        plain = spec.replace(decomposition=FLAT, algorithms=AlgorithmChoice(name=name), passes=())
        found[name] = plain
        found[f"{name} mapped"] = plain.replace(passes=(MAP_RANKS,))
        if registry.find(kind, name).streams:
            found[f"{name} {NETWORK_SEGMENT // 1024}KiB"] = plain.replace(
                passes=segmented(NETWORK_SEGMENT)
            )
    for name in ("hierarchical", "full_lane"):
        by_node = Decomposition(name=name)
        by_switch = Decomposition(name=name, by="switch")
        nested = by_switch.replace(node=by_node)
        for one in (by_node, by_switch, nested):
            found[name_of(one)] = spec.replace(decomposition=one, algorithms=AUTO, passes=())
        for form in with_algorithms(spec, nested, is_thorough=False):
            if form.has_segments:
                found[form.name_with(NETWORK_SEGMENT)] = form.of(spec, NETWORK_SEGMENT)
        for form in with_algorithms(spec, nested, is_thorough=True):
            # Between two switches, one exchange of everything takes fewer rounds.
            if form.name.endswith(" lane=recursive_doubling"):
                found[form.name] = form.of(spec, None)
    return found


NETWORK_SEGMENT: Final = 16 * 1024
"""Bytes of their segments: the eager limit."""


NETWORK_FLAT: Final = {
    "allreduce": ("recursive_doubling", "rabenseifner", "ring"),
    "allgather": ("recursive_doubling", "bruck", "ring"),
    "bcast": ("binomial", "chain", "scatter_allgather"),
}
"""The flat algorithms of the candidates on a topology, by kind."""


def chosen(names: str, plans: str, spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return the candidates of a set whose names match one of the patterns, by commas."""
    patterns = plans.split(",")
    return {
        name: one
        for name, one in CANDIDATES[names](spec).items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


CANDIDATES: Final = {
    "plans": candidates_of,
    "flat": flat_candidates_of,
    "network": network_candidates_of,
}
"""Sets of candidates by name."""
