"""Candidates worth measuring at a message size: those predicted to be near the fastest.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006, sections 2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, Protocol, TypeVar

from collplan.planner.decompose import guideline
from collplan.planner.passes.progress.cores import POLICIES, CorePlacement
from collplan.planner.passes.progress.tree_model import tree_height
from collplan.planner.plan.phases import NATIVE
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.candidates import SEGMENTS, SHARED, Form, all_forms, call_of, with_algorithms
from collplan.select.entries import Entry, EstimateRequest, NotEstimated, estimate_all
from collplan.select.sweep import price
from collplan.select.waves import MAX_TASKS, SAFETY, WAVES
from collplan.specs import (
    AlgorithmChoice,
    Decomposition,
    Machine,
    Method,
    PassChoice,
    PlanSpec,
)
from collplan.specs.request import MESSAGES

DIMENSIONS: Final = (2, 3)
"""Numbers of mesh dimensions that are tried; more dimensions were never faster."""
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
"""Number of candidates that are always kept, independent of their predicted times."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def all_variants(spec: PlanSpec) -> tuple[Form, ...]:
    """Return every form of a spec's collective on its machine, flat algorithms first.

    The forms are flat algorithms, decompositions through one, several or all ranks of a
    node, all meshes of two and three dimensions, compositions of other collectives,
    alltoall designs, and variants that use memory shared within a node. The compiler
    may still refuse a form whose algorithms do not support this machine or rank order.

    Parameters
    ----------
    spec : PlanSpec
        Only its machine and its collective are used.
    """
    # The native collective is always measured.
    found = [
        form
        for form in all_forms(spec)
        if form.method.decomposition.name != "mesh"
        and form.name != call_of(spec.collective.planned_kind)
    ]
    size = spec.machine.n_ranks
    if spec.collective.planned_kind not in guideline.FORMS or size == 1:
        return tuple(found)
    for dimensions in DIMENSIONS:
        for shape in mesh_shapes(size, dimensions):
            mesh = Decomposition(name="mesh", shape=shape)
            found += with_algorithms(spec, mesh, is_thorough=False)
    found += _sharing(spec, found)
    if spec.collective.is_pairwise:
        found += _designs(spec, {form.name for form in found})
    return tuple(found)


def mesh_shapes(n_ranks: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every mesh of `n_ranks` ranks whose extents are at least 2.

    Shapes are in ascending order.

    Examples
    --------
    >>> [f"{rows}x{columns}" for rows, columns in mesh_shapes(12, 2)]
    ['2x6', '3x4', '4x3', '6x2']
    >>> list(mesh_shapes(12, 3))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if dimensions == 1:
        if n_ranks > 1:
            yield (n_ranks,)
        return
    for first in range(2, n_ranks // 2 + 1):
        if n_ranks % first == 0:
            for others in mesh_shapes(n_ranks // first, dimensions - 1):
                yield (first, *others)


def family_of(form: Form) -> str:
    """Return the family of a form: the name of its decomposition, or ``design``."""
    decomposition = form.method.decomposition.name
    is_design = form.name in DESIGNS and form.name != decomposition and decomposition != "flat"
    return DESIGN if is_design or form.name.endswith(DESIGN) else decomposition


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


def _sharing(spec: PlanSpec, others: Sequence[Form]) -> list[Form]:
    """Return the variants of forms that use memory shared within a node."""
    machine = spec.machine
    if max(machine.node_to_n_ranks) == 1:
        return []
    if machine.nodes == 1:
        return [Form("flat shared", Method(transport=SHARED))]
    through_leaders = ("hierarchical", "full_lane", "multi_leader")
    return [
        Form(f"{form.name} shared", form.method.replace(transport=SHARED))
        for form in others
        if form.method.decomposition.name in through_leaders
        and form.method == Method(decomposition=form.method.decomposition)
        and form.method.decomposition.by == "node"
    ]


def _designs(spec: PlanSpec, taken: set[str]) -> Iterator[Form]:
    """Yield the alltoall designs for nodes of several ranks that are not among the other forms."""
    machine = spec.machine
    if machine.nodes == 1 or max(machine.node_to_n_ranks) == 1:
        return
    for name, design in DESIGNS.items():
        method = design.of(spec).method
        decomposition = method.decomposition.name
        if decomposition == "flat" or (name in taken and name != decomposition):
            continue
        yield Form(f"{name} {DESIGN}" if name in taken else name, method)


class MapFunction(Protocol):
    """A map function that may distribute its calls, for instance over ranks."""

    def __call__(
        self, function: Callable[[Item], Result], items: Sequence[Item], /
    ) -> list[Result]:
        """Return the results in the order of the items."""


def one_by_one(function: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
    """Apply a function to items in this process, one after another."""
    return [function(item) for item in items]


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
    predicted_s : float or None
        Simulated time in seconds; None if the candidate was not simulated.
    """

    name: str
    family: str
    spec: PlanSpec
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredCandidates:
    """The candidates to measure at one message size.

    Parameters
    ----------
    kept : list of Candidate
        Candidates in ascending order of predicted time.
    skipped : int
        Number of further distinct plans that can be compiled but are not measured.
    """

    kept: list[Candidate]
    skipped: int


def select(
    spec: PlanSpec,
    keep_within: float,
    spread: MapFunction = one_by_one,
    at_most: int | None = None,
    *,
    beside_cores: int | None = None,
) -> MeasuredCandidates:
    """Return the candidates whose predicted time is near the best.

    Candidates are kept if their times are within `keep_within` times the best time. The best
    candidate of each family is also kept within a larger factor, and at least `LEAST_KEPT`
    candidates are kept in total. A segmented variant is kept only if it is predicted to be
    faster than the same form with whole messages.

    Parameters
    ----------
    spec : PlanSpec
        Only its machine and its collective are used.
    keep_within : float
        Factor of the best predicted time within which candidates are kept.
    spread : callable
        Map function that runs estimates and simulations; it does not affect the result.
    at_most : int, optional
        Largest number of candidates to keep.
    beside_cores : int, optional
        Cores per node, for calls that overlap computation; see `overlapping`.
    """
    entries = list_entries(spec, spread)
    if beside_cores is not None:
        entries = [entry for entry in entries if starts_alone(entry.spec)]
    limit = max(SAFETY, keep_within)
    makespans = _simulate_near(entries, limit, keep_within, spread)
    found = {e.name: s for e in entries if (s := makespans.get(e.name)) is not None}
    gaining = [e for e in entries if e.name in found and _gains(e, found)]
    ordered = sorted(gaining, key=lambda entry: found[entry.name])
    best_s = min(found.values(), default=0.0)
    kept: list[Candidate] = []
    families: set[str] = set()
    for entry in ordered:
        family, predicted_s = family_of(entry.form), found[entry.name]
        is_first = family not in families and predicted_s <= limit * best_s
        if predicted_s <= keep_within * best_s or is_first or len(kept) < LEAST_KEPT:
            kept.append(Candidate(entry.name, family, entry.spec, predicted_s))
            families.add(family)
    if beside_cores is not None:
        machine = spec.machine.replace(cores=beside_cores)
        kept = overlapping(spec.replace(machine=machine), kept, at_most)
    kept = kept[:at_most]
    # A simulation without a result means that the plan cannot be compiled.
    n_compilable = sum(makespans.get(entry.name, 0.0) is not None for entry in entries)
    return MeasuredCandidates(kept, max(0, n_compilable - len(kept)))


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


def _gains(entry: Entry, found: Mapping[str, float]) -> bool:
    """Return whether an entry has whole messages, or is faster than its form without segments."""
    whole_s = found.get(entry.form.name, inf)
    return entry.name == entry.form.name or found[entry.name] < whole_s


def list_entries(spec: PlanSpec, spread: MapFunction) -> list[Entry]:
    """Return an entry for every distinct plan that can be estimated.

    Of several entries with the same plan, the first is kept.
    """
    questions = [
        EstimateRequest(form, spec, SEGMENTS if form.has_segments else (), MAX_TASKS)
        for form in all_variants(spec)
    ]
    different: dict[tuple[str, ...], Entry] = {}
    for entry in estimate_all(questions, spread, {}):
        if not isinstance(entry, NotEstimated):
            passes, transport = entry.form.method.passes, entry.spec.transport
            native = NATIVE if entry.form.is_native else ""
            identity = (entry.estimate.identity, native, str(transport), *map(str, passes))
            different.setdefault(identity, entry)
    return list(different.values())


def _simulate_near(
    entries: Sequence[Entry], limit: float, keep_within: float, spread: MapFunction
) -> dict[str, float | None]:
    """Simulate the entries that may be near the best, in waves of ascending estimates.

    Returns
    -------
    dict
        Simulated makespans in seconds by name; None for plans that cannot be compiled.
    """
    found: dict[str, float | None] = {}
    queue = [e for e in entries if e.estimate.n_tasks <= MAX_TASKS]
    queue.sort(key=lambda entry: entry.estimate.price_s)
    for n in (*WAVES, None):
        best_s = min((s for s in found.values() if s is not None), default=None)
        if best_s is not None:
            # The closed-form estimates are valid only for messages that no pass rewrites.
            queue = [
                entry
                for entry in queue
                if entry.spec.transport != MESSAGES
                or entry.form.method.passes
                or (
                    entry.estimate.bound_s <= keep_within * best_s
                    and entry.estimate.price_s <= limit * best_s
                )
            ]
        wave, queue = queue[:n], queue[len(queue[:n]) :]
        prices = spread(price, [entry.spec for entry in wave])
        found.update((e.name, one.makespan_s) for e, one in zip(wave, prices, strict=True))
    return found
