"""Comparison of all candidates of a collective over sizes; those that may win are simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, pairwise
from math import inf
from typing import Any, Final

from collplan.executors.cost.time_bound import time_bound
from collplan.select.auto import resolve
from collplan.select.candidates import (
    SEGMENTS,
    Form,
    all_forms,
    own_form,
    require_known_algorithms,
    shared_forms,
)
from collplan.select.compared import LEFT_OUT, TOLERANCE, Comparison, LevelCost, Pruned, leave_out
from collplan.select.crossovers import Crossover, choose_best, find_crossovers
from collplan.select.cuts import Cut
from collplan.select.entries import Entry, EstimateRequest, NotEstimated, bytes_of, estimate_all
from collplan.select.estimate import forget_drafts
from collplan.select.jobs import Jobs, Progress
from collplan.select.library_defaults import estimate_defaults, price_defaults
from collplan.select.own_proofs import without_wrong
from collplan.select.sweep import executor_on
from collplan.select.waves import price_in_time, simulate_all, simulate_in_time
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective_base import LEVELS_OF_BITS, Reproducible
from collplan.specs.errors import CollplanError, show_value, suggest
from collplan.specs.request import Method

SECONDS: Final = 60.0
"""Default limit of the processor time of each worker, in seconds."""
CROSSING_S: Final = 10.0
"""Processor time of each worker to refine crossovers in seconds, if there is a limit."""


def compare(
    specs: Sequence[PlanSpec],
    executor: Executor | Any | None = None,
    *,
    patterns: Sequence[str] = (),
    prune: bool = True,
    max_tasks: int | None = None,
    seconds: float | None = SECONDS,
    on_progress: Progress | None = None,
    others: Mapping[str, Method] | None = None,
    has_levels: bool = False,
) -> Comparison:
    """Find the best candidate of every size, and the sizes at which it changes.

    Parameters
    ----------
    specs : sequence of PlanSpec
        One spec with several counts, ascending.
    executor : concurrent.futures.Executor or distributed.Client, optional
        Workers; the result does not depend on them.
    patterns : sequence of str
        Names or families, with wildcards, to which the spec's own candidate is added. If there
        are none, all candidates are compared, and the defaults of MPI libraries.
    prune : bool
        Whether to leave out candidates that are far from the best.
    max_tasks : int, optional
        Number of tasks of the largest plans.
    seconds : float, optional
        Approximate processor time of each worker, in seconds; None for no limit. Estimates may
        take 60 % of it, or 10 s if that is more, and simulations 40 %. Candidates that remain are
        left out. Crossovers are then refined for up to 10 s.
    on_progress : callable, optional
        Called when a job is done.
    others : mapping of str to Method, optional
        Further candidates by name, which are simulated at every size.
    has_levels : bool
        Whether to compare levels of `reproducible`, too, each of which takes as long again.

    Raises
    ------
    CollplanError
        If a pattern fits no candidate, or the spec names an algorithm that does not exist.
    """
    require_known_algorithms(specs[-1])
    comparison = Comparison([bytes_of(spec) for spec in specs], others=tuple(others or {}))
    jobs = Jobs(executor_on(executor), on_progress, seconds)
    forms = [Form(*other) for other in (others or {}).items()]
    forms += _forms(specs[-1], comparison)
    try:
        entries = _list_entries(specs, forms, patterns, jobs, comparison)
        defaults = [] if patterns else estimate_defaults(specs, jobs, comparison)
        by_size = _within_limits(entries, comparison, max_tasks, jobs.most_effort())
        _find_winners(by_size, defaults, jobs, comparison, prune=prune)
    finally:
        forget_drafts()
    comparison.bounds = {bytes_of(spec): time_bound(spec) for spec in specs}
    comparison.level = specs[-1].collective.level
    if has_levels and comparison.level is not None:
        _compare_levels(specs, comparison, patterns, (jobs, prune, max_tasks))
    return comparison


def _compare_levels(
    specs: Sequence[PlanSpec],
    comparison: Comparison,
    patterns: Sequence[str],
    limits: tuple[Jobs, bool, int | None],
) -> None:
    """Find the best candidate of each level."""
    own = comparison.level
    assert own is not None
    others = [level for level in LEVELS_OF_BITS if level != own]
    compared = {one: _compare_level(specs, one, patterns, *limits) for one in others}
    comparison.levels = _costs_of_levels({own: comparison, **compared})


def _compare_level(
    specs: Sequence[PlanSpec],
    level: Reproducible,
    patterns: Sequence[str],
    jobs: Jobs,
    prune: bool,
    max_tasks: int | None,
) -> Comparison:
    """Compare all candidates at another level, without the defaults of MPI libraries."""
    specs = [spec.with_level(level).with_method(Method(transport=spec.transport)) for spec in specs]
    comparison = Comparison([bytes_of(spec) for spec in specs])
    jobs = Jobs(jobs.executor, jobs.on_progress, jobs.seconds)
    forms = _forms(specs[-1], comparison)
    if patterns:
        forms = [form for form in forms if any(_is_fit(pattern, form) for pattern in patterns)]
        patterns = [one for one in patterns if any(_is_fit(one, form) for form in forms)]
    try:
        entries = _list_entries(specs, forms, patterns, jobs, comparison)
        by_size = _within_limits(entries, comparison, max_tasks, jobs.most_effort())
        simulate_all(by_size, jobs, comparison, prune=prune)
    finally:
        forget_drafts()
    _name_winners(comparison)
    return comparison


def _costs_of_levels(
    by_level: Mapping[Reproducible, Comparison],
) -> dict[Reproducible, dict[int, LevelCost]]:
    """Return the best candidate of each level by bytes; those of stronger levels are among them."""
    found: dict[Reproducible, dict[int, LevelCost]] = {}
    costs: dict[int, LevelCost] = {}
    for level in reversed(LEVELS_OF_BITS):
        one = by_level[level]
        for size, name in one.leading.items():
            new = LevelCost(name, one.makespans[name, size], level)
            costs[size] = min(costs.get(size, new), new, key=lambda cost: cost.makespan_s)
        found[level] = dict(costs)
    return {level: found[level] for level in LEVELS_OF_BITS}


def _find_winners(
    by_size: dict[int, list[Entry]],
    defaults: Sequence[Entry],
    jobs: Jobs,
    comparison: Comparison,
    *,
    prune: bool,
) -> None:
    """Simulate candidates and the defaults of libraries; name winners and crossovers."""
    simulate_all(by_size, jobs, comparison, prune=prune)
    _simulate_winners_nearby(by_size, jobs, comparison)
    price_defaults(defaults, by_size, jobs, comparison)
    _name_winners(comparison)
    comparison.crossovers = _crossovers(comparison, jobs)


def _simulate_winners_nearby(
    by_size: Mapping[int, Sequence[Entry]], jobs: Jobs, comparison: Comparison
) -> None:
    """Simulate the winners of neighboring sizes at both sizes, if they differ.

    The crossover between them is found sooner with makespans at both ends. A winner may prove to
    be the best at the other size, too.
    """
    entries = {(one.name, one.size): one for one in chain(*by_size.values())}
    waiting = entries.keys() - comparison.makespans
    while waiting:
        best = choose_best(comparison.sizes, list(comparison.specs), comparison.makespans)
        pairs = [pair for pair in pairwise(best) if best[pair[0]] != best[pair[1]]]
        wanted = dict.fromkeys((best[one], size) for pair in pairs for one in pair for size in pair)
        missing = [key for key in wanted if key in waiting]
        if not missing:
            break
        waiting.difference_update(missing)
        simulate_in_time([entries[key] for key in missing], jobs, comparison)
    comparison.pruned = [
        one for one in comparison.pruned if (one.candidate, one.bytes) not in comparison.makespans
    ]


def _crossovers(comparison: Comparison, jobs: Jobs) -> list[Crossover]:
    """Return the crossovers between neighboring sizes, refined as far as the time allows."""
    too_large = {(one.candidate, one.bytes) for one in comparison.pruned if one.by in LEFT_OUT}
    end_s = inf if jobs.seconds is None else jobs.used_s + CROSSING_S * jobs.n_workers
    return find_crossovers(
        comparison.sizes,
        comparison.best,
        {name: comparison.specs[name] for name in set(comparison.best.values())},
        lambda some: price_in_time([*map(resolve, some)], "crossovers", end_s - jobs.used_s, jobs),
        comparison.makespans,
        too_large,
    )


def _within_limits(
    entries: Sequence[Entry], comparison: Comparison, max_tasks: int | None, most_effort: float
) -> dict[int, list[Entry]]:
    """Return candidates by size; note those that are too large as pruned."""
    by_size: dict[int, list[Entry]] = {size: [] for size in comparison.sizes}
    for entry in entries:
        if max_tasks is not None and entry.estimate.n_tasks > max_tasks:
            leave_out(comparison, entry, "tasks")
        elif entry.estimate.effort > most_effort:
            leave_out(comparison, entry, "memory")
        else:
            by_size[entry.size].append(entry)
    return by_size


def _name_winners(comparison: Comparison) -> None:
    """Name the winner of every size, unless a candidate that was left out may be better."""
    names, times = list(comparison.specs), comparison.makespans
    comparison.leading = choose_best(comparison.sizes, names, times)
    for size, name in comparison.leading.items():
        best_s = times[name, size]
        rivals = [
            one
            for one in comparison.pruned
            if one.bytes == size and one.by in LEFT_OUT
            if max(one.bound_s, one.price_s) < (1 - TOLERANCE) * best_s
        ]
        if rivals:
            by_price = sorted(rivals, key=lambda one: (not one.is_estimated, one.price_s))
            comparison.rivals[size] = by_price
        else:
            comparison.best[size] = name


def _forms(spec: PlanSpec, comparison: Comparison) -> list[Form]:
    """Return all forms. If the spec's own is not one of them, it comes first."""
    forms = list(all_forms(spec))
    own = own_form(spec)
    forms = without_wrong(spec, [*forms, *shared_forms(spec, forms)], own, comparison.refused)
    if own is None:
        return forms
    wanted = own.of(spec)
    for form in forms:
        for segment in _segments(form):
            if form.of(spec, segment) == wanted:
                comparison.own = form.name_with(segment)
                return forms
    comparison.own = own.name
    return [*without_wrong(spec, [own], own, comparison.refused), *forms]


def _takes(patterns: Sequence[str], form: Form, cut: Cut) -> bool:
    """Return whether a candidate is selected, by its name or family."""
    return not patterns or any(_fits(pattern, form, cut) for pattern in patterns)


def _fits(pattern: str, form: Form, cut: Cut) -> bool:
    names = (form.name_with(cut), form.method.decomposition.name)
    return any(fnmatchcase(name, pattern) for name in names)


def _is_fit(pattern: str, form: Form) -> bool:
    """Return whether a pattern fits a form, whole or in segments."""
    return any(_fits(pattern, form, size) for size in _segments(form))


def _require_all_used(
    patterns: Sequence[str], forms: Sequence[Form], refused: Mapping[str, str]
) -> None:
    for pattern in patterns:
        if pattern in refused:
            raise CollplanError(f"--candidates: {pattern} {refused[pattern]}")
        if not any(_is_fit(pattern, form) for form in forms):
            names = ", ".join(form.name for form in forms)
            hint = suggest(pattern, [form.name for form in forms])
            problem = f"{show_value(pattern)} fits none; {hint}"
            raise CollplanError(f"--candidates: {problem}there are {names}")


def _segments(form: Form) -> tuple[int | None, ...]:
    return (None, *SEGMENTS) if form.has_segments else (None,)


def _resolved(form: Form, spec: PlanSpec) -> Form:
    """Return a form with the decomposition that ``auto`` chooses for a spec, if it says so."""
    if form.method.decomposition.name != "auto":
        return form
    return replace(form, method=resolve(form.of(spec)).method)


def _list_entries(
    specs: Sequence[PlanSpec],
    forms: Sequence[Form],
    patterns: Sequence[str],
    jobs: Jobs,
    comparison: Comparison,
) -> list[Entry]:
    """Return every candidate at every size at which it exists."""
    _require_all_used(patterns, forms, comparison.refused)
    questions: list[EstimateRequest] = []
    for form in forms:
        names = {form.name_with(segment) for segment in _segments(form)}
        is_own = bool(names & {comparison.own, *comparison.others})
        wanted = [size for size in _segments(form) if is_own or _takes(patterns, form, size)]
        cuts = tuple(size for size in wanted if size is not None)
        if wanted:
            questions += [EstimateRequest(_resolved(form, spec), spec, cuts) for spec in specs]
    entries = []
    largest: dict[str, tuple[Form, Cut, PlanSpec]] = {}
    for entry in estimate_all(questions, jobs.estimate, comparison.refused):
        if isinstance(entry, NotEstimated):
            form, spec = entry.question.form, entry.question.spec
            largest[form.name] = form, None, spec
            unknown = Pruned(form.name, bytes_of(spec), entry.by, 0.0, 0.0, 0)
            comparison.pruned.append(unknown)
        elif _takes(patterns, entry.form, entry.cut) or entry.name in {
            comparison.own,
            *comparison.others,
        }:
            largest[entry.name] = entry.form, entry.cut, entry.base
            entries.append(entry)
    unresolved = {form.name: form for form in forms if form.method.decomposition.name == "auto"}
    for name, (form, cut, spec) in largest.items():
        comparison.specs[name] = unresolved.get(name, form).of(spec, cut)
    return entries
