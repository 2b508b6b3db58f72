"""Resolution of ``decomposition: auto`` to the candidate with the least estimated cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from collplan.planner.algorithms import registry
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.program import program_of
from collplan.planner.lowering.select import LONG_BYTES
from collplan.planner.passes import run_blueprint_passes
from collplan.planner.plan.phases import is_inside
from collplan.select import estimate as estimates
from collplan.select.alltoall_cost import exchange_ns, flat_ns
from collplan.select.candidates import (
    MAP_RANKS,
    SEGMENTS,
    SHARED,
    Form,
    alltoall_forms,
    cut_alltoalls,
    likely_forms,
    segmented,
    sliced,
)
from collplan.select.cuts import Slices
from collplan.select.shapes import has_like_shares
from collplan.select.structures import Structures
from collplan.specs import AlgorithmChoice, Decomposition, PlanSpec
from collplan.specs.named_option import Algorithms
from collplan.specs.request import AUTO, FLAT, MESSAGES

CONGESTION: Final = 1.3
"""Ratio of the time of whole messages, which are not ordered, to that of segments in windows."""
RENDEZVOUS: Final = 1.2
"""Factor for segments above the eager limit, each of which waits for a handshake. On an emulated
cluster, segments of 32 KiB took 1.03 to 1.35 times as long as of 16 KiB, the limit; the estimate
is the same for both, within 4 %."""
UNLIKE_SHARES: Final = 1.02
"""Factor for leaders with unequal shares, such as 5 leaders on 3 lanes, whose segments do not pass
the phases of a node at the same pace. In simulations, decompositions with equally many leaders on
every lane had the same estimate, but took as little as 0.89 times as long."""
WHOLE_PLAN_RANKS: Final = 4096
"""Number of ranks from which no candidate is cut into segments or slices. Passes of segments must
see all ranks: for a bcast on 7168 ranks that took 26 s and 3.5 GiB. Slices do not need this, but
with n slices the plan of all ranks has n times as many tasks if it does not fold."""
SIMULATED: Final = 6
"""Number of candidates that are simulated over a topology, since closed forms do not consider the
times at which links are shared."""
MOST_TASKS: Final = 400_000
"""Number of tasks of the largest plan that is simulated over a topology."""
ROOM: Final = 1.03
"""Factor by which a plan that needs memory of its nodes must be faster than other plans."""


@dataclass(frozen=True)
class EstimatedSpec:
    """A way to compute the collective, with its estimated cost.

    Parameters
    ----------
    spec : PlanSpec
        Spec that names decomposition, algorithms, transport and passes.
    cost_s : float
        Approximate time in seconds, which serves only to rank candidates.
    n_tasks : int
        Approximate number of tasks of its plan, or 0 if it is unknown.
    """

    spec: PlanSpec
    cost_s: float
    n_tasks: int = 0


def resolve(spec: PlanSpec) -> PlanSpec:
    """Return `spec` with ``auto`` replaced by the cheapest decomposition.

    Over a topology, the cheapest candidates with small plans are simulated. The spec's passes
    are kept. If it has none, segments or slices with limits of requests are added, and a design
    of alltoall adds its passes and transport. Of candidates with equal costs, the simpler one is
    taken.

    Raises
    ------
    AlgorithmError
        If the spec names algorithms, because these also need a named decomposition.
    """
    if spec.decomposition.name != "auto":
        return spec
    if spec.algorithms != AUTO:
        raise AlgorithmError(
            f"algorithms: {spec.algorithms} with decomposition auto, which chooses algorithms "
            "itself; leave algorithms out, or name the decomposition"
        )
    if spec.machine.network.topology is not None:
        return _best_simulated(spec)
    return candidates(spec)[0].spec


@lru_cache(maxsize=64)
def _best_simulated(spec: PlanSpec) -> PlanSpec:
    """Return the candidate with the least makespan among those with the cheapest closed forms.

    Closed forms consider how long each link is busy, but not when. If no candidate has a small
    plan, they alone decide.
    """
    from collplan.executors.cost.simulator import simulate
    from collplan.planner.compiler import compile_plan

    found = candidates(spec)
    best, best_s = found[0].spec, math.inf
    for candidate in found[:SIMULATED]:
        try:
            if max(candidate.n_tasks, spec.machine.n_ranks**2) > MOST_TASKS:
                continue
            makespan_s = simulate(compile_plan(candidate.spec, is_proved=False)).makespan_s
        except AlgorithmError:
            continue
        if makespan_s < best_s:
            best, best_s = candidate.spec, makespan_s
    return best


@lru_cache(maxsize=64)
def candidates(spec: PlanSpec) -> tuple[EstimatedSpec, ...]:
    """Return all candidates for a spec's collective on its machine, cheapest first.

    If all are refused, for example because of a pass, the flat one is returned. Its compilation
    then raises an error with the reason.
    """
    if _has_designs(spec):
        found = [*_alltoall_designs(spec), *_through_leaders(spec, cut_alltoalls(spec))]
    else:
        found = list(_through_leaders(spec, likely_forms(spec)))
    estimates.forget_drafts()
    found.sort(key=lambda candidate: candidate.cost_s)
    return tuple(found) or (EstimatedSpec(spec.replace(decomposition=FLAT), 0.0),)


def _through_leaders(
    spec: PlanSpec, forms: Iterable[tuple[Decomposition, Algorithms]]
) -> Iterator[EstimatedSpec]:
    """Yield decompositions with algorithms, both with whole messages and with cut ones."""
    machine, network = spec.machine, spec.machine.network
    structures = Structures()
    for plain in _plain_and_mapped(spec, forms):
        decomposition = plain.decomposition
        is_whole = plain.algorithms == AUTO or machine.n_ranks >= WHOLE_PLAN_RANKS
        segments = () if is_whole or spec.passes else SEGMENTS
        try:
            found = estimates.estimate(
                plain,
                segments,
                structures=structures,
                may_fold=False,
                are_sliced=not spec.collective.has_blocks,
            )
        except AlgorithmError:
            continue  # refused for this order of ranks or this operation
        is_unlike = not has_like_shares(machine, decomposition)
        for one in found:
            price_s = (UNLIKE_SHARES if is_unlike else 1) * one.price_s
            if one.cut is None or spec.passes:
                yield EstimatedSpec(plain, CONGESTION * price_s, one.n_tasks)
            else:
                n_bytes = one.cut.crossing_bytes if isinstance(one.cut, Slices) else one.cut
                are_eager = n_bytes <= network.eager_limit_bytes
                price_s *= RENDEZVOUS if network.handshake and not are_eager else 1
                pieces = _in_pieces(plain, one.cut, are_eager=are_eager)
                yield EstimatedSpec(pieces, price_s, one.n_tasks)


def _in_pieces(plain: PlanSpec, cut: int | Slices, *, are_eager: bool) -> PlanSpec:
    """Return a spec with the passes that cut its messages, or its vector."""
    if not isinstance(cut, Slices):
        return plain.replace(passes=(*plain.passes, *segmented(cut)))
    first, *later = sliced(cut.number, are_eager=are_eager)
    return plain.replace(passes=(first, *plain.passes, *later))


def _plain_and_mapped(
    spec: PlanSpec, forms: Iterable[tuple[Decomposition, Algorithms]]
) -> Iterator[PlanSpec]:
    """Yield decompositions with algorithms; over a topology, also with ranks mapped to it."""
    for decomposition, algorithms in forms:
        plain = spec.replace(decomposition=decomposition, algorithms=algorithms)
        yield plain
        if spec.machine.network.topology is not None and not spec.passes:
            yield plain.replace(passes=(MAP_RANKS,))


def _has_designs(spec: PlanSpec) -> bool:
    """Return whether the designs of alltoall can compute a spec's collective."""
    collective, n_ranks = spec.collective, spec.machine.n_ranks
    if not collective.is_pairwise or n_ranks == 1 or collective.count == 0:
        return False
    return collective.regular is None


def _alltoall_designs(spec: PlanSpec) -> Iterator[EstimatedSpec]:
    """Yield a spec's alltoall in every design that the spec allows, simple ones first.

    The spec's passes and transport are kept. If it has none, those of the design are taken.
    """
    seen = set()
    # If messages do not take turns, they leave one after another, without congestion.
    congestion = CONGESTION if spec.machine.network.turn_bytes else 1.0
    for form in _simple_first(spec):
        chosen = form.of(spec)
        if spec.passes:
            chosen = chosen.replace(passes=spec.passes)
        if spec.transport != MESSAGES:
            chosen = chosen.replace(transport=spec.transport)
        if chosen in seen:
            continue  # designs that differ only in fields that the spec replaces
        seen.add(chosen)
        try:
            yield EstimatedSpec(chosen, congestion * _design_ns(chosen) * 1e-9)
        except AlgorithmError:
            continue


def _simple_first(spec: PlanSpec) -> list[Form]:
    """Return the designs to try, without `scatter_destination` or `pairwise`, depending on size."""
    is_long = spec.collective.count * spec.collective.itemsize * spec.machine.n_ranks >= LONG_BYTES
    left_out = "scatter_destination" if is_long else "pairwise"
    forms = [form for form in alltoall_forms(spec) if form.name != left_out]
    roles = spec.transport.shared_roles
    if spec.transport != MESSAGES and roles is not None and "node" not in roles:
        forms = [form for form in forms if form.method.transport != SHARED]
    if spec.transport == MESSAGES and any(form.method.transport == SHARED for form in forms):
        # Through shared memory, the same messages need fewer copies and a shorter estimate.
        forms = [form for form in forms if form.method.decomposition.form != "collect"]
    # Bruck's algorithm is the least simple flat one.
    return sorted(forms, key=lambda form: form.name == "bruck")


def _design_ns(spec: PlanSpec) -> float:
    """Return the approximate time of a design of alltoall, not below that of its busiest link."""
    if spec.machine.network.topology is None:
        return _design_on_lanes_ns(spec)
    return max(_design_on_lanes_ns(spec), 1e9 * estimates.estimate(spec)[0].bound_s)


def _design_on_lanes_ns(spec: PlanSpec) -> float:
    """Return the approximate time of a design of alltoall whose messages share only lanes."""
    machine, collective, choice = spec.machine, spec.collective, spec.algorithms
    blueprint, passes = run_blueprint_passes(draft(spec), spec.passes)
    _require_roles(spec, program_of(blueprint).roles)
    if blueprint.exchange is not None:
        turns = [choice.options for choice in passes if choice.name == "double_buffer"]
        slots = turns[0].get("slots", 2) if turns else None
        coalesces = any(choice.name == "coalesce_requests" for choice in passes)
        return ROOM * exchange_ns(
            blueprint.exchange,
            machine,
            collective.itemsize,
            is_coalesced=blueprint.exchange.is_coalesced or coalesces,
            slots=slots if isinstance(slots, int) else None,
        )
    names = {one.name for one in registry.of("alltoall") if one.at_once}
    is_flat = spec.decomposition.name == "flat"
    if is_flat and isinstance(choice, AlgorithmChoice) and choice.name in names:
        n_bytes = collective.count * collective.itemsize
        return flat_ns(machine, n_bytes, is_in_place=collective.in_place)
    return 1e9 * estimates.estimate(spec, may_fold=False)[0].price_s


def _require_roles(spec: PlanSpec, roles: Sequence[str]) -> None:
    """Raise `AlgorithmError` if a spec's transport names a role that does not exist."""
    for role in spec.transport.shared_roles or ():
        if not any(is_inside(name, role) for name in roles):
            raise AlgorithmError(f"transport.{role}: {spec.decomposition} has no such role")
