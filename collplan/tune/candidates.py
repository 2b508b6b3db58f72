"""Candidates worth measuring at a message size: those expected to be near the fastest.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006, sections 2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from collplan.planner.passes.progress.cores import POLICIES, CorePlacement
from collplan.planner.passes.progress.tree_model import tree_height
from collplan.planner.plan.phases import NATIVE
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.candidates import Form, all_forms, call_of, shared_forms
from collplan.select.search import search_near
from collplan.select.waves import SAFETY
from collplan.specs import AlgorithmChoice, Machine, Method, PassChoice, PlanSpec
from collplan.specs.request import MESSAGES

TOPOLOGIES: Final = {
    "linear": "star",
    "binomial": "tree",
    "recursive_doubling": "hypercube",
    "recursive_halving": "hypercube",
    "ring": "ring",
    "chain": "ring",
}
"""Virtual topology by flat algorithm, for algorithms that are also known by a topology."""
DESIGN: Final = "design"
"""Family name of the alltoall designs."""
MOST_LEVELS: Final = 3
"""Largest number of tree levels that are tried on the ranks' own cores."""
SPLIT: Final = {
    "bcast": ("binomial",),
    "reduce": ("binomial",),
    "gather": ("binomial",),
    "scatter": ("binomial",),
    "allreduce": ("reduce_bcast",),
    "scan": ("binomial",),
    "exscan": ("binomial",),
}
"""Tree algorithms, by collective, whose levels can be split between cores."""
LEAST_KEPT: Final = 3
"""Number of candidates that are always kept, whatever their expected times."""


def all_variants(spec: PlanSpec) -> list[Form]:
    """Return every form of a spec's collective on its machine, flat algorithms first.

    These are the forms that `compare` knows, also through shared memory, and all meshes of two and
    three dimensions, but for the native collective, which is always measured. The compiler may
    still refuse a form whose algorithms do not support this machine or rank order.

    Parameters
    ----------
    spec : PlanSpec
        Only its machine and its collective are used.
    """
    forms = list(all_forms(spec, all_meshes=True))
    forms += shared_forms(spec, forms)
    return [form for form in forms if form.name != call_of(spec.collective.planned_kind)]


def family_of(form: Form) -> str:
    """Return the family of a form: the name of its decomposition, or ``design``."""
    decomposition = form.method.decomposition.name
    is_design = form.name in DESIGNS and form.name != decomposition and decomposition != "flat"
    return DESIGN if is_design else decomposition


def topology_of(form: Form) -> str | None:
    """Return the virtual topology of a flat algorithm, or None if the form has none.

    Examples
    --------
    >>> topology_of(Form("binomial", Method(algorithms="binomial")))
    'tree'
    """
    choice = form.method.algorithms
    if form.method.decomposition.name != "flat" or not isinstance(choice, AlgorithmChoice):
        return None
    return TOPOLOGIES.get(choice.name)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form of a collective at one message size.

    Parameters
    ----------
    name : str
        Name in tables.
    family : str
        Family of the form; see `family_of`.
    spec : PlanSpec
        Spec to compile.
    expected_s : float or None
        Expected time in seconds, by simulation or by closed form; None if it is not known.
    """

    name: str
    family: str
    spec: PlanSpec
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredCandidates:
    """The candidates to measure at one message size.

    Parameters
    ----------
    kept : list of Candidate
        Candidates in ascending order of expected time.
    skipped : int
        Number of further distinct plans that can be compiled but are not measured.
    """

    kept: list[Candidate]
    skipped: int


def select(
    spec: PlanSpec,
    keep_within: float,
    at_most: int | None = None,
    *,
    beside_cores: int | None = None,
) -> MeasuredCandidates:
    """Return the candidates whose time is expected to be near the best.

    Candidates are kept if their simulated times are within `keep_within` times the best time. The
    best candidate of each family is also kept within a larger factor, and at least `LEAST_KEPT`
    candidates are kept in total. A segmented variant is kept only if it is expected to be
    faster than the same form with whole messages.

    Parameters
    ----------
    spec : PlanSpec
        Only its machine and its collective are used.
    keep_within : float
        Factor of the best simulated time within which candidates are kept.
    at_most : int, optional
        Largest number of candidates to keep.
    beside_cores : int, optional
        Cores per node, for calls that overlap computation; see `overlapping`.
    """
    forms = all_variants(spec)
    if beside_cores is not None:
        forms = [form for form in forms if starts_alone(form.of(spec))]
    found = search_near(spec, forms, keep_within)
    times = {one.entry.name: one.time_s for one in found}
    limit = max(SAFETY, keep_within)
    best_s = min((one.time_s for one in found if one.is_simulated), default=0.0)
    kept: list[Candidate] = []
    families: set[str] = set()
    for one in found:
        entry, family = one.entry, family_of(one.entry.form)
        if entry.cut is not None and one.time_s >= times.get(entry.form.name, inf):
            continue
        is_near = one.is_simulated and one.time_s <= keep_within * best_s
        is_first = family not in families and one.time_s <= limit * best_s
        if is_near or is_first or len(kept) < LEAST_KEPT:
            kept.append(Candidate(entry.name, family, one.spec, one.time_s))
            families.add(family)
    if beside_cores is not None:
        machine = spec.machine.replace(cores=beside_cores)
        kept = overlapping(spec.replace(machine=machine), kept, at_most)
    kept = kept[:at_most]
    return MeasuredCandidates(kept, max(0, len(found) - len(kept)))


def overlapping(
    spec: PlanSpec, candidates: Sequence[Candidate], at_most: int | None = None
) -> list[Candidate]:
    """Return the candidates to measure while ranks compute, with their progress placements.

    Each candidate is combined with every placement policy that makes a difference on the
    machine. Tree algorithms are always included, also with the levels nearest the leaves
    on the ranks' own cores.

    Parameters
    ----------
    spec : PlanSpec
        Spec whose machine has the communication cores.
    candidates : sequence of Candidate
        Best candidates of the same collective for blocking calls, all of which
        `starts_alone` admits.
    at_most : int, optional
        Largest number of candidates to return; trees are dropped last.
    """
    machine, kind = spec.machine, spec.collective.planned_kind
    by_name = {one.name: replace(one, spec=one.spec.replace(machine=machine)) for one in candidates}
    trees = [
        by_name.pop(name)
        if name in by_name
        else Candidate(name, "flat", spec.with_method(Method(algorithms=name)))
        for name in (SPLIT.get(kind, ()) if machine.n_ranks > 1 else ())
    ]
    others = list(by_name.values())
    if any(len(free) for free in CorePlacement.of(machine).free):
        highest = min(MOST_LEVELS, int(tree_height(machine.n_ranks)) - 1)
        split = [
            _progressing(tree, f"S={levels}", "split_tree", levels=levels)
            for tree in trees
            for levels in range(1, highest + 1)
        ]
        others, trees = _placed(others, machine), [*_placed(trees, machine), *split]
    n_others = None if at_most is None else max(0, at_most - len(trees))
    return [*others[:n_others], *trees][:at_most]


def _placed(candidates: Sequence[Candidate], machine: Machine) -> list[Candidate]:
    """Return the candidates with each placement policy that makes a difference on a machine."""
    policies = POLICIES[1:] if machine.numa_domains > 1 else POLICIES[2:]
    return [
        _progressing(one, policy, "place_progress", policy=policy)
        for one in candidates
        for policy in policies
    ]


def _progressing(candidate: Candidate, suffix: str, name: str, **options: Any) -> Candidate:
    """Return a candidate with a progress pass inserted before its other passes."""
    choice = PassChoice(name=name, options=options)
    spec = candidate.spec.replace(passes=(choice, *candidate.spec.passes))
    return replace(candidate, name=f"{candidate.name} {suffix}", spec=spec)


def starts_alone(spec: PlanSpec) -> bool:
    """Return whether a rank can start a plan without synchronizing with other ranks.

    This is required for a non-blocking call. It is not possible for plans that share memory or
    have native components, as their ranks allocate memory or create communicators together.
    """
    names = spec.method.named_algorithms(spec.collective.planned_kind)
    return spec.transport == MESSAGES and all(name != NATIVE for _, name in names)
