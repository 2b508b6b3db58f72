"""Candidates worth measuring at a size: variants that the cost model finds near the best.

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
from collplan.select.candidates import SEGMENTS, SHARED, Form, all_forms, with_algorithms
from collplan.select.entries import Entry, NotEstimated, Question, estimate_all
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
"""Of meshes: more of them have not been seen to pay."""
TOPOLOGIES: Final = {
    "linear": "star",
    "binomial": "tree",
    "recursive_doubling": "hypercube",
    "recursive_halving": "hypercube",
    "ring": "ring",
    "chain": "ring",
}
"""The virtual topologies that flat algorithms are known as, too."""
DESIGN: Final = "design"
"""The family of alltoall's designs."""
MOST_LEVELS: Final = 3
"""Levels of a tree on the ranks' own cores that are tried, as in the paper on overlap."""
SPLIT: Final = {
    "bcast": ("binomial",),
    "reduce": ("binomial",),
    "gather": ("binomial",),
    "scatter": ("binomial",),
    "allreduce": ("reduce_bcast",),
    "scan": ("binomial",),
    "exscan": ("binomial",),
}
"""The trees whose levels are split."""
LEAST_KEPT: Final = 3
"""So many are measured whatever the model says, if there are as many."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def all_variants(spec: PlanSpec) -> tuple[Form, ...]:
    """Return every way to compute a spec's collective on its machine, flat ones first.

    Flat algorithms, through leaders of nodes (one, several, all), every mesh of two
    and three dimensions, compositions of other collectives, the designs of
    alltoall, and what ranks of a node can share memory for. One may be
    refused, by what its algorithms or this order of ranks do not allow.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    """
    # Native itself is measured anyway.
    found = [
        form
        for form in all_forms(spec)
        if form.method.decomposition.name != "mesh" and form.name != NATIVE
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
    """Yield every mesh of `n_ranks` ranks, extents of 2 and more, the first one ascending.

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
    """Return the family of a form: ``flat``, a decomposition, or ``design``."""
    own = form.method.decomposition.name
    is_design = form.name in DESIGNS and form.name != own and own != "flat"
    return DESIGN if is_design or form.name.endswith(DESIGN) else own


def topology_of(form: Form) -> str | None:
    """Return the virtual topology of a flat algorithm, None for all others.

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
    """Return what is worth a try where ranks of a node share memory."""
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
    """Yield the designs that need nodes of several ranks, and are not there yet."""
    machine = spec.machine
    if machine.nodes == 1 or max(machine.node_to_n_ranks) == 1:
        return
    for name, design in DESIGNS.items():
        method = design.of(spec).method
        own = method.decomposition.name
        if own == "flat" or (name in taken and name != own):
            continue
        yield Form(f"{name} {DESIGN}" if name in taken else name, method)


class Spread(Protocol):
    """Applies a function to items, wherever there is room; results come in their order."""

    def __call__(
        self, function: Callable[[Item], Result], items: Sequence[Item], /
    ) -> list[Result]:
        """Return the results of all items."""


def one_by_one(function: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
    """Apply a function to items here, in turn."""
    return [function(item) for item in items]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form at one size.

    Parameters
    ----------
    name : str
        Its name in tables.
    family : str
        The family of its form.
    spec : PlanSpec
        The spec to compile.
    predicted_s : float or None
        Time by the simulator in s; None where it was not simulated.
    """

    name: str
    family: str
    spec: PlanSpec
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates to measure at one size.

    Parameters
    ----------
    kept : list of Candidate
        The best predicted first.
    skipped : int
        Number of other plans that differ from these and can be compiled.
    """

    kept: list[Candidate]
    skipped: int


def select(
    spec: PlanSpec,
    keep_within: float,
    spread: Spread = one_by_one,
    at_most: int | None = None,
    *,
    beside_cores: int | None = None,
) -> Selection:
    """Return the candidates whose predicted time is near the best.

    Kept are all within a factor of the best, the best of every family that is not
    hopeless, and `LEAST_KEPT` in any case. Segments are kept where they are faster
    than the same in whole messages.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    keep_within : float
        Factor of the best predicted time within which candidates are kept.
    spread : callable
        Where to estimate and simulate; the result does not depend on it.
    at_most : int, optional
        Keep no more, the best predicted.
    beside_cores : int, optional
        Cores of a node, for calls that overlap computation: see `overlapping`.
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
    # What was simulated in vain cannot be compiled.
    n_there = sum(makespans.get(entry.name, 0.0) is not None for entry in entries)
    return Selection(kept, max(0, n_there - len(kept)))


def overlapping(
    spec: PlanSpec, candidates: Sequence[Candidate], at_most: int | None = None
) -> list[Candidate]:
    """Return what is worth measuring beside computation: candidates, and where they progress.

    Each progresses on the communication cores by every policy that differs. A tree is always
    among them, also with levels nearest the leaves on the ranks' own cores.

    Parameters
    ----------
    spec : PlanSpec
        Whose machine has the cores.
    candidates : sequence of Candidate
        The best for blocking calls that `starts_alone` admits, of the same collective.
    at_most : int, optional
        Return no more; trees stay.
    """
    machine, kind = spec.machine, spec.collective.planned_kind
    own = {one.name: replace(one, spec=one.spec.replace(machine=machine)) for one in candidates}
    trees = [
        own.pop(name)
        if name in own
        else Candidate(name, "flat", spec.with_method(Method(algorithms=name)))
        for name in (SPLIT.get(kind, ()) if machine.n_ranks > 1 else ())
    ]
    others = list(own.values())
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
    """Return candidates with progress placed by each policy that differs on a machine."""
    policies = POLICIES[1:] if machine.numa_domains > 1 else POLICIES[2:]
    return [
        _progressing(one, policy, "place_progress", policy=policy)
        for one in candidates
        for policy in policies
    ]


def _progressing(candidate: Candidate, suffix: str, name: str, **options: Any) -> Candidate:
    """Return a candidate with the pass that moves its progress, before those it has."""
    choice = PassChoice(name=name, options=options)
    spec = candidate.spec.replace(passes=(choice, *candidate.spec.passes))
    return replace(candidate, name=f"{candidate.name} {suffix}", spec=spec)


def starts_alone(spec: PlanSpec) -> bool:
    """Return whether a rank can start a plan without meeting the others, as calls must.

    They would have to meet for memory that they share, or for communicators of native
    components.
    """
    names = spec.method.named_algorithms(spec.collective.planned_kind)
    return spec.transport == MESSAGES and all(name != NATIVE for _, name in names)


def _gains(entry: Entry, found: Mapping[str, float]) -> bool:
    """Return whether it is whole, or faster than the same in whole messages."""
    whole_s = found.get(entry.form.name, inf)
    return entry.name == entry.form.name or found[entry.name] < whole_s


def list_entries(spec: PlanSpec, spread: Spread) -> list[Entry]:
    """Return every different plan that can be estimated, by its first name."""
    questions = [
        Question(form, spec, SEGMENTS if form.has_segments else (), MAX_TASKS)
        for form in all_variants(spec)
    ]
    different: dict[tuple[str, ...], Entry] = {}
    for entry in estimate_all(questions, spread, {}):
        if not isinstance(entry, NotEstimated):
            passes, transport = entry.form.method.passes, entry.spec.transport
            who = NATIVE if entry.form.is_native else ""
            identity = (entry.estimate.identity, who, str(transport), *map(str, passes))
            different.setdefault(identity, entry)
    return list(different.values())


def _simulate_near(
    entries: Sequence[Entry], limit: float, keep_within: float, spread: Spread
) -> dict[str, float | None]:
    """Simulate in waves, the cheapest by closed form first, what may be near the best."""
    found: dict[str, float | None] = {}
    queue = [e for e in entries if e.estimate.n_tasks <= MAX_TASKS]
    queue.sort(key=lambda entry: entry.estimate.price_s)
    for n in (*WAVES, None):
        best_s = min((s for s in found.values() if s is not None), default=None)
        if best_s is not None:
            # Closed forms hold for messages that no pass rewrites.
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
