"""Searches for the best plan, and for all plans near the best, within budgets of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Final

from collplan.planner.algorithms.registry import registry
from collplan.planner.plan.phases import NATIVE
from collplan.select.candidates import SEGMENTS, Form, searched_forms
from collplan.select.compared import LEFT_OUT, Comparison
from collplan.select.entries import Entry, EstimateRequest, NotEstimated, bytes_of, estimate_all
from collplan.select.estimate import FEW_RANKS, Estimate, forget_drafts
from collplan.select.jobs import Jobs
from collplan.select.waves import SAFETY, Ratios, simulate_waves
from collplan.specs import PlanSpec
from collplan.specs.request import FLAT

EFFORT: Final = 600_000
"""Budget: number of tasks that a search compiles and simulates. A limit of time would make the
choice depend on the machine that searches."""
LARGE_EFFORT: Final = 200_000
"""The same for more than `FEW_RANKS` ranks, whose plans often take more time per task."""
NEAR_EFFORT: Final = 3 * EFFORT
"""The same for a search of all candidates near the best."""
REFINED: Final = 2.0
"""Ratio to the best time within which a form must be so that its variants are tried."""
WHOLE_PLAN_RANKS: Final = 4096
"""Number of ranks from which no candidate is cut into segments or slices. Passes of segments must
see all ranks: for a bcast on 7168 ranks that took 26 s and 3.5 GiB. Slices do not need this, but
with n slices the plan of all ranks has n times as many tasks if it does not fold."""
DOUBT: Final = 3.0
"""Factor for the expected time of a plan that is too large to simulate. For an allreduce of 16 MiB
on 8,192 ranks, `two_tree` took four times as long as was expected."""
MOST_CUT: Final = LARGE_EFFORT // 2
"""Number of tasks above which plans with cut messages are not tried."""


@dataclass(frozen=True)
class Ranked:
    """A candidate with its time.

    Parameters
    ----------
    entry : Entry
        Candidate, with the estimate of its plan.
    time_s : float
        Simulated time in seconds if `is_simulated`, else the expected time.
    is_simulated : bool
        Whether the plan was simulated.
    """

    entry: Entry
    time_s: float
    is_simulated: bool

    @property
    def spec(self) -> PlanSpec:
        """Return the spec that names decomposition, algorithms, transport and passes."""
        return self.entry.spec


@lru_cache(maxsize=64)
def search(spec: PlanSpec) -> tuple[Ranked, ...]:
    """Return the candidates for a spec's collective on its machine, best first.

    The most promising ones by estimate are simulated, as many as the budget allows. If all are
    refused, for example because of a pass, the flat one is returned. Its compilation then raises
    an error with the reason.
    """
    comparison = Comparison([bytes_of(spec)])
    effort = EFFORT if spec.machine.n_ranks <= FEW_RANKS else LARGE_EFFORT
    entries = _simulate_best(spec, searched_forms(spec), comparison, effort)
    slow = {one.candidate for one in comparison.pruned if one.by not in LEFT_OUT}
    found = [
        one if one.is_simulated else replace(one, time_s=DOUBT * one.time_s)
        for one in _ranked(entries, comparison)
        if one.is_simulated or one.entry.name not in slow
    ]
    if not found:
        flat = Form("flat", spec.replace(decomposition=FLAT).method)
        unknown = Estimate(None, 0.0, 0.0, 0, 0, "")
        found = [Ranked(Entry(flat, None, spec, unknown), 0.0, False)]
    return tuple(sorted(found, key=lambda one: one.time_s))


def search_near(spec: PlanSpec, forms: Sequence[Form], within: float) -> list[Ranked]:
    """Return all different plans of forms, best first, and simulate those near the best.

    Parameters
    ----------
    spec : PlanSpec
        Spec with the machine and the collective.
    forms : sequence of Form
        Forms of the collective.
    within : float
        Factor of the least makespan within which candidates are simulated.
    """
    comparison = Comparison([bytes_of(spec)], within=within)
    entries = _simulate_best(spec, forms, comparison, NEAR_EFFORT)
    return sorted(_ranked(entries, comparison), key=lambda one: one.time_s)


def _simulate_best(
    spec: PlanSpec, forms: Sequence[Form], comparison: Comparison, effort: int
) -> list[Entry]:
    """Simulate the most promising forms within a budget; return all entries that differ.

    Variants of a decomposition follow if this decomposition may be near the best one.
    """
    (size,), jobs = comparison.sizes, Jobs(None, None, None, effort)
    try:
        simple = [form for form in forms if not form.is_variant]
        entries = _distinct(_simple_entries(spec, simple, jobs, comparison.within), [])
        queues, by_size = {size: [*entries]}, {size: entries}
        simulate_waves(queues, by_size, jobs, comparison, prune=True, most=2)
        least_s = min((one.time_s for one in _ranked(entries, comparison)), default=inf)
        wanted = _variants(forms, entries, comparison)
        variants = _entries(spec, wanted, jobs, SAFETY * comparison.within * least_s)
        variants = _distinct(variants, entries)
        entries += variants
        queues[size] += variants
        simulate_waves(queues, by_size, jobs, comparison, prune=True)
    finally:
        forget_drafts()
    return entries


def _variants(forms: Sequence[Form], entries: list[Entry], comparison: Comparison) -> list[Form]:
    """Return the variants of decompositions that may be near the best one."""
    found = list(_ranked(entries, comparison))
    most_s = max(REFINED, comparison.within) * min((one.time_s for one in found), default=0.0)
    near = {one.entry.form.method.decomposition for one in found if one.time_s <= most_s}
    return [form for form in forms if form.is_variant and form.method.decomposition in near]


def _distinct(entries: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    """Return the entries whose estimates differ from those before them and from the known ones.

    Many trees of few ranks are the same, so that plans with equal estimates have equal times.
    Calls of the library's own collectives have the estimates of the algorithms that it takes.
    """

    def figures(entry: Entry) -> tuple[str, int, int, bool]:
        found, is_native = entry.estimate, NATIVE in entry.form.name.split()
        return f"{found.price_s:.9g} {found.bound_s:.9g}", found.n_tasks, found.effort, is_native

    taken = {figures(one) for one in known}
    first = {figures(one): one for one in reversed(entries)}
    return [one for one in entries if first[figures(one)] is one and figures(one) not in taken]


def _ranked(entries: list[Entry], comparison: Comparison) -> Iterator[Ranked]:
    """Yield the entries that are not refused, with their times."""
    (size,), times = comparison.sizes, comparison.makespans
    ratios = Ratios.at(size, {size: entries}, times)
    for one in entries:
        time_s = times.get((one.name, size))
        if time_s is not None:
            yield Ranked(one, time_s, True)
        elif one.name not in comparison.refused:
            yield Ranked(one, ratios.likely(one) * one.estimate.price_s, False)


def _simple_entries(
    spec: PlanSpec, forms: Sequence[Form], jobs: Jobs, within: float
) -> list[Entry]:
    """Return the entries of simple forms in their order.

    Forms that name algorithms with as many rounds as ranks come last: the estimates of the others
    tell which of them may be near the best.
    """
    every = (one for kind in registry.kinds() for one in registry.of(kind))
    names = {(one.kind, one.name) for one in every if one.has_many_rounds}
    kind = spec.collective.planned_kind
    slow = [form for form in forms if not names.isdisjoint(form.method.named_algorithms(kind))]
    found = _entries(spec, [form for form in forms if form not in slow], jobs)
    least_s = min((one.estimate.price_s for one in found), default=inf)
    found += _entries(spec, slow, jobs, SAFETY * within * least_s)
    return sorted(found, key=lambda one: forms.index(one.form))


def _entries(spec: PlanSpec, forms: Sequence[Form], jobs: Jobs, most_s: float = inf) -> list[Entry]:
    """Return the entries of forms, both with whole messages and with cut ones.

    Those of plans that surely take longer than `most_s` seconds may be missing.
    """
    n_ranks = spec.machine.n_ranks
    segments = () if n_ranks >= WHOLE_PLAN_RANKS else SEGMENTS
    are_sliced = n_ranks > FEW_RANKS and not spec.collective.has_blocks
    questions = [
        EstimateRequest(
            form,
            spec,
            segments if form.has_segments else (),
            are_sliced=are_sliced,
            most_s=most_s,
        )
        for form in forms
    ]
    found = estimate_all(questions, jobs.estimate, {})
    entries = [one for one in found if not isinstance(one, NotEstimated)]
    entries = [one for one in entries if one.estimate.price_s <= most_s]
    return [one for one in entries if one.cut is None or one.estimate.effort <= MOST_CUT]
