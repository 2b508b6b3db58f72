"""What ``decomposition: auto`` means: the cheapest of many, by closed forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from planner.choice import state
from planner.decompose import draft, is_commutative, transpose
from planner.errors import AlgorithmError
from planner.lowering import lower
from planner.price import Workload
from specs import AlgorithmsByRole, Decomposition, PassChoice, PlanSpec
from specs.request import AUTO

SEGMENTS = tuple(1 << bits for bits in range(12, 19))
"""Segments tried, in bytes: 4 KiB to 256 KiB."""
PIPELINED = {
    "bcast": ("linear", "chain"),
    "reduce": ("linear", "chain"),
    "allreduce": ("ring", "ring"),
    "allgather": ("linear", "ring"),
    "reduce_scatter_block": ("linear", "ring"),
    "gather": ("linear", "linear"),
    "scatter": ("linear", "linear"),
    "alltoall": ("linear", "linear"),
    "scan": ("chain", "chain"),
    "exscan": ("chain", "chain"),
}
"""Algorithms whose segments follow each other closely: inside nodes, and across."""
MANY_RANKS = 256
"""From so many ranks on, flat algorithms of p² messages are not tried."""
WINDOWS = (PassChoice(name="prioritize"), PassChoice(name="limit_requests"))
"""What segments need: an order, and few requests in flight."""


@dataclass(frozen=True)
class Candidate:
    """A way to compute the collective, priced.

    Parameters
    ----------
    spec : PlanSpec
        With decomposition, algorithms and passes named.
    price_s : float
        About how long it takes, in seconds: it ranks candidates, no more.
    """

    spec: PlanSpec
    price_s: float


def resolve(spec: PlanSpec) -> PlanSpec:
    """Return `spec` with ``auto`` replaced by the cheapest decomposition.

    What the spec says of passes stays; where it says nothing, segments and
    windows come with the decomposition. Equal prices go to the simpler.

    Raises
    ------
    AlgorithmError
        If the spec names algorithms, which need a decomposition that is named.
    """
    if spec.decomposition.name != "auto":
        return spec
    if spec.algorithms != AUTO:
        raise AlgorithmError(
            f"algorithms: {spec.algorithms} with decomposition auto, which chooses algorithms "
            "itself; leave algorithms out, or name the decomposition"
        )
    return candidates(spec)[0].spec


@lru_cache(maxsize=64)
def candidates(spec: PlanSpec) -> tuple[Candidate, ...]:
    """Return all candidates for a spec's collective on its machine, cheapest first."""
    found = []
    for decomposition, algorithms in _forms(spec):
        plain = spec.replace(decomposition=decomposition, algorithms=algorithms)
        try:
            workload = _workload(plain)
        except AlgorithmError:
            continue  # what this order of ranks or operation does not allow
        found.append(Candidate(plain, workload.price_ns() * 1e-9))
        if spec.passes or algorithms == AUTO:
            continue
        for segment in SEGMENTS:
            if segment < workload.n_bytes.max(initial=0):
                passes = (PassChoice(name="segment", options={"max_bytes": segment}), *WINDOWS)
                price_s = workload.price_ns(segment) * 1e-9
                found.append(Candidate(plain.replace(passes=passes), price_s))
    return tuple(sorted(found, key=lambda candidate: candidate.price_s))


def _workload(spec: PlanSpec) -> Workload:
    blueprint = draft(spec)
    n_ranks, itemsize = spec.machine.n_ranks, spec.collective.itemsize
    messages, steps, _ = lower(state(blueprint), n_ranks, blueprint.n_scratch, is_commutative(spec))
    return Workload.of(messages, steps, spec.machine, itemsize)


def _forms(spec: PlanSpec) -> Iterator[tuple[Decomposition, Any]]:
    """Yield decompositions and algorithms worth trying, simple ones first."""
    machine, kind = spec.machine, spec.collective.kind
    yield Decomposition(name="flat"), AUTO
    if kind == "barrier" or machine.n_ranks == 1:
        return
    inside, across = PIPELINED[kind]
    is_small = machine.n_ranks <= MANY_RANKS
    if is_small or inside == "chain" or kind in ("bcast", "reduce", "gather", "scatter"):
        for name in dict.fromkeys((across, inside)):
            yield Decomposition(name="flat"), {"name": name}
    fullest, size = max(machine.node_to_n_ranks), machine.n_ranks
    if machine.nodes == 1 or fullest == 1:
        return
    by_role = AlgorithmsByRole.model_validate(
        {f"node/{k}": inside for k, (inside, _) in PIPELINED.items()}
        | {f"lane/{k}": across for k, (_, across) in PIPELINED.items()}
    )
    shapes: list[dict[str, Any]] = [{"name": "hierarchical"}, {"name": "full_lane"}]
    if 1 < machine.lanes <= fullest // 4:
        shapes.append({"name": "multi_leader", "leaders": machine.lanes})
    if kind in transpose.FORMS:
        shapes += [shape | {"form": "transpose"} for shape in shapes]
    for shape in shapes:
        chosen = Decomposition.model_validate(shape)
        yield chosen, AUTO
        yield chosen, _present(spec, chosen, by_role)
    for length in {machine.nodes, fullest}:
        if size % length == 0 and 1 < length < size:
            yield Decomposition(name="mesh", shape=(size // length, length)), AUTO


def _present(spec: PlanSpec, chosen: Decomposition, by_role: AlgorithmsByRole) -> AlgorithmsByRole:
    """Return the algorithms of the roles and kinds a decomposition really has."""
    plain = spec.replace(decomposition=chosen)
    try:
        components = draft(plain).components
    except AlgorithmError:
        return by_role
    there = [f"{c.role}/{c.kind}" for c in components if not c.is_local]
    return AlgorithmsByRole(roles={key: by_role.roles[key] for key in dict.fromkeys(there)})
