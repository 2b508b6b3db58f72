"""What ``decomposition: auto`` tries for an alltoall, and how long each takes by closed forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collplan.planner.algorithms import registry
from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.select import LONG_BYTES
from collplan.planner.passes import run_blueprint_passes
from collplan.planner.plan.phases import is_inside
from collplan.select.alltoall_cost import flat_ns, phases_ns
from collplan.select.candidates import SHARED, Form, alltoall_forms
from collplan.select.exchange_cost import exchange_ns
from collplan.specs import AlgorithmChoice, PlanSpec
from collplan.specs.request import MESSAGES

ROOM: Final = 1.03
"""What a plan's time counts more that needs room in its nodes' memory: it must be worth that."""


def has_designs(spec: PlanSpec) -> bool:
    """Return whether a spec's collective is one that designs of alltoall compute."""
    collective, n_ranks = spec.collective, spec.machine.n_ranks
    if not collective.is_pairwise or n_ranks == 1 or collective.count == 0:
        return False
    return collective.pair_counts(n_ranks) is None


def price_designs(spec: PlanSpec) -> Iterator[tuple[PlanSpec, float]]:
    """Yield a spec's alltoall in every design that it leaves open, and seconds, simple ones first.

    The spec's passes stay; where it has none, a design's come with it. Where the
    spec says nothing of transport, a design's comes with it, too.
    """
    seen = set()
    for form in _simple_first(spec):
        chosen = form.of(spec)
        if spec.passes:
            chosen = chosen.replace(passes=spec.passes)
        if spec.transport != MESSAGES:
            chosen = chosen.replace(transport=spec.transport)
        if chosen in seen:
            continue  # designs that differ in passes, or in what these are refused
        seen.add(chosen)
        try:
            yield chosen, _price_ns(chosen) * 1e-9
        except AlgorithmError:
            continue


def _simple_first(spec: PlanSpec) -> list[Form]:
    """Return the designs to try: of flat ones by messages at once the safer one for its size."""
    is_long = spec.collective.count * spec.collective.itemsize * spec.machine.n_ranks >= LONG_BYTES
    left_out = "scatter_destination" if is_long else "pairwise"
    forms = [form for form in alltoall_forms(spec) if form.name != left_out]
    roles = spec.transport.shared_roles
    if spec.transport != MESSAGES and roles is not None and "node" not in roles:
        forms = [form for form in forms if form.transport != SHARED]
    if spec.transport == MESSAGES and any(form.transport == SHARED for form in forms):
        # Through memory the same messages cost fewer copies, and less to price.
        forms = [form for form in forms if form.decomposition.form != "collect"]
    # Bruck's is the least simple of the flat ones.
    return sorted(forms, key=lambda form: form.name == "bruck")


def _price_ns(spec: PlanSpec) -> float:
    machine, collective = spec.machine, spec.collective
    blueprint, passes = run_blueprint_passes(draft(spec), spec.passes)
    _require_roles(blueprint)
    if blueprint.exchange is not None:
        turns = [choice.options for choice in passes if choice.name == "double_buffer"]
        slots = turns[0].get("slots", 2) if turns else None
        return ROOM * exchange_ns(
            blueprint.exchange,
            machine,
            collective.itemsize,
            is_coalesced=any(choice.name == "coalesce_requests" for choice in passes),
            slots=slots if isinstance(slots, int) else None,
        )
    choice = spec.algorithms
    is_flat = spec.decomposition.name == "flat"
    names = {one.name for one in registry.of("alltoall") if one.at_once}
    if is_flat and isinstance(choice, AlgorithmChoice) and choice.name in names:
        n_bytes = collective.count * collective.itemsize
        return flat_ns(machine, n_bytes, is_in_place=collective.in_place)
    return phases_ns(blueprint)


def _require_roles(blueprint: Blueprint) -> None:
    """Raise `AlgorithmError` where a spec's transport is of a role that is not there."""
    components = blueprint.components
    names = {one.role for one in components} if blueprint.exchange is None else {"node", "lane"}
    for role in blueprint.spec.transport.shared_roles or ():
        if not any(is_inside(name, role) for name in names):
            raise AlgorithmError(f"transport.{role}: {blueprint.decomposition} has no such role")
