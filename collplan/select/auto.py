"""What ``decomposition: auto`` means: the cheapest of many, by closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.tables import tables_of
from collplan.select.alltoall_auto import has_designs, price_designs
from collplan.select.candidates import SEGMENTS, likely_forms, segmented
from collplan.select.phase_cost import Workload
from collplan.specs import PlanSpec
from collplan.specs.request import AUTO, FLAT


@dataclass(frozen=True)
class Candidate:
    """A way to compute the collective, priced.

    Parameters
    ----------
    spec : PlanSpec
        With decomposition, algorithms, transport and passes named.
    price_s : float
        About how long it takes, in seconds: it ranks candidates, no more.
    """

    spec: PlanSpec
    price_s: float


def resolve(spec: PlanSpec) -> PlanSpec:
    """Return `spec` with ``auto`` replaced by the cheapest decomposition.

    What the spec says of passes stays; where it says nothing, segments and
    windows come with the decomposition, and with designs of alltoall what they
    need of passes and transport. Equal prices go to the simpler.

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
    """Return all candidates for a spec's collective on its machine, cheapest first.

    Where all are refused, as by what a pass needs, the flat one is left to say why.
    """
    if has_designs(spec):
        found = [Candidate(*priced) for priced in price_designs(spec)]
    else:
        found = _through_leaders(spec)
    found.sort(key=lambda candidate: candidate.price_s)
    return tuple(found) or (Candidate(spec.replace(decomposition=FLAT), 0.0),)


def _through_leaders(spec: PlanSpec) -> list[Candidate]:
    """Return what closed forms of rounds and segments price, simple ones first."""
    found = []
    for decomposition, algorithms in likely_forms(spec):
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
                price_s = workload.price_ns(segment) * 1e-9
                found.append(Candidate(plain.replace(passes=segmented(segment)), price_s))
    return found


def _workload(spec: PlanSpec) -> Workload:
    messages, steps = tables_of(draft(spec))
    return Workload.of(messages, steps, spec.machine, spec.collective.itemsize)
