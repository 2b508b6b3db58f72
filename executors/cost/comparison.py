"""Compare all candidates of a collective over sizes, simulating those that may win."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from executors.cost.crossovers import Crossover, choose_best, find_crossovers
from executors.cost.sweep import price, run_jobs
from planner.bounds import Bounds, lower_bounds
from planner.choosing.appraisal import Appraisal, appraise
from planner.choosing.candidates import SEGMENTS, Form, all_forms, own_form
from planner.errors import AlgorithmError
from specs import PlanSpec
from specs.errors import CollplanError

SAFETY: Final = 4.0
"""Closed forms are believed to a factor: above this times the best, a candidate is pruned."""
MAX_TASKS: Final = 600_000
"""Plans of more tasks are not simulated: a second or two and some hundred megabytes each."""
WAVES: Final = (3, 12)
"""How many of the cheapest by closed form are simulated first, then, before all others."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """A candidate that was not simulated at a size.

    Parameters
    ----------
    candidate : str
    bytes : int
    by : str
        ``bound``: it cannot be below `value_s`, and another is; ``price``: its
        closed form `value_s` is more than `SAFETY` times another's makespan;
        ``tasks``: its plan is too large.
    value_s : float
        In seconds; 0 for ``tasks``.
    n_tasks : int
        About how many tasks it would have.
    """

    candidate: str
    bytes: int
    by: str
    value_s: float
    n_tasks: int


@dataclass(eq=False)
class Comparison:
    """What a comparison found.

    Parameters
    ----------
    sizes : list of int
        Bytes, ascending.
    specs : dict of str to PlanSpec
        Every candidate at the largest size it exists at, in order.
    own : str or None
        The candidate that the spec names itself.
    makespans : dict of (str, int) to float
        Seconds by candidate and bytes, of all that were simulated.
    pcie_reads : dict of (str, int) to int
        Reads of queue pairs by all adapters, of the same, on a network with a `nic`.
    pruned : list of Pruned
    refused : dict of str to str
        Why there is no such candidate.
    best : dict of int to str
        The candidate with the least makespan, by bytes.
    crossovers : list of Crossover
    bounds : dict of int to Bounds
        What no plan can beat, by bytes.
    """

    sizes: list[int]
    specs: dict[str, PlanSpec] = field(default_factory=dict)
    own: str | None = None
    makespans: dict[tuple[str, int], float] = field(default_factory=dict)
    pcie_reads: dict[tuple[str, int], int] = field(default_factory=dict)
    pruned: list[Pruned] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    best: dict[int, str] = field(default_factory=dict)
    crossovers: list[Crossover] = field(default_factory=list)
    bounds: dict[int, Bounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A candidate at a size."""

    name: str
    form: Form
    spec: PlanSpec
    appraisal: Appraisal


def compare(
    specs: Sequence[PlanSpec],
    executor: Executor | None = None,
    *,
    patterns: Sequence[str] = (),
    prune: bool = True,
    max_tasks: int = MAX_TASKS,
    on_progress: Progress | None = None,
) -> Comparison:
    """Find the best candidate of every size, and where the best changes.

    Parameters
    ----------
    specs : sequence of PlanSpec
        One spec with several counts, ascending.
    executor : concurrent.futures.Executor, optional
        Where to appraise and simulate; the result does not depend on it.
    patterns : sequence of str
        Names or families of candidates, with wildcards; all where empty. The
        spec's own is always among them.
    prune : bool
        Whether to leave out what cannot be, or by far is not, the best.
    max_tasks : int
        Plans of more tasks are left out, pruning or not.
    on_progress : callable, optional
        Called as jobs are done.

    Returns
    -------
    Comparison

    Raises
    ------
    CollplanError
        If a pattern fits no candidate.
    """
    comparison = Comparison([_bytes_of(spec) for spec in specs])
    jobs = _Jobs(executor, on_progress)
    forms = _forms(specs[-1], comparison)
    entries = _appraise_all(specs, forms, _Filter(patterns), jobs, comparison, max_tasks)
    by_size: dict[int, list[_Entry]] = {size: [] for size in comparison.sizes}
    for entry in entries:
        if entry.appraisal.n_tasks > max_tasks:
            _leave_out(comparison, entry, "tasks", 0.0)
        else:
            by_size[_bytes_of(entry.spec)].append(entry)
    _simulate_all(by_size, jobs, comparison, prune=prune)
    for spec in specs:
        comparison.bounds[_bytes_of(spec)] = lower_bounds(spec)
    comparison.best = choose_best(comparison.sizes, list(comparison.specs), comparison.makespans)
    too_large = {(one.candidate, one.bytes) for one in comparison.pruned if one.by == "tasks"}
    comparison.crossovers = find_crossovers(
        comparison.best,
        {name: comparison.specs[name] for name in set(comparison.best.values())},
        lambda some: [found.makespan_s for found in jobs.run("crossovers", price, some)],
        too_large,
    )
    return comparison


def _bytes_of(spec: PlanSpec) -> int:
    return int(spec.collective.count * spec.collective.itemsize)


def _forms(spec: PlanSpec, comparison: Comparison) -> list[Form]:
    """Return all forms; the spec's own first where it is none of the others."""
    forms, own = list(all_forms(spec)), own_form(spec)
    if own is None:
        return forms
    wanted = own.of(spec)
    for form in forms:
        for segment in (None, *(SEGMENTS if form.has_segments else ())):
            if form.of(spec, segment) == wanted:
                comparison.own = form.name_with(segment)
                return forms
    comparison.own = own.name
    return [own, *forms]


class _Filter:
    """Which candidates are wanted, by name or family."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns
        self.used: set[str] = set()

    def takes(self, form: Form, segment: int | None) -> bool:
        names = (form.name_with(segment), form.decomposition.name)
        fits = {p for p in self.patterns if any(fnmatchcase(name, p) for name in names)}
        self.used |= fits
        return bool(fits) or not self.patterns

    def require_all_used(self, forms: Sequence[Form]) -> None:
        for pattern in self.patterns:
            if pattern not in self.used:
                names = ", ".join(form.name for form in forms)
                raise CollplanError(f"--candidates: {pattern!r} fits none; there are {names}")


@dataclass(frozen=True)
class _Jobs:
    """Runs jobs and tells how far they are."""

    executor: Executor | None
    on_progress: Progress | None

    def run(
        self, what: str, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> tuple[Result, ...]:
        """Run a function on all items; return the results in their order."""
        n_done = 0

        def count(_place: int, _result: Result) -> None:
            nonlocal n_done
            n_done += 1
            if self.on_progress is not None:
                self.on_progress(what, n_done, len(items))

        return run_jobs(function, items, self.executor, on_done=count)


@dataclass(frozen=True, slots=True)
class _Question:
    """What to appraise."""

    spec: PlanSpec
    segments: tuple[int, ...]
    max_tasks: int


def _answer(question: _Question) -> tuple[Appraisal, ...] | str:
    """Appraise, wherever this runs; a refusal is its reason."""
    try:
        return appraise(question.spec, question.segments, question.max_tasks)
    except AlgorithmError as error:
        return str(error)


def _appraise_all(
    specs: Sequence[PlanSpec],
    forms: Sequence[Form],
    wanted: _Filter,
    jobs: _Jobs,
    comparison: Comparison,
    max_tasks: int,
) -> list[_Entry]:
    """Return every candidate at every size it exists at."""
    asked: list[tuple[Form, tuple[int, ...], PlanSpec]] = []
    for form in forms:
        segments = SEGMENTS if form.has_segments else ()
        is_own = comparison.own in {form.name_with(segment) for segment in (None, *segments)}
        cuts = tuple(size for size in segments if wanted.takes(form, size) or is_own)
        if wanted.takes(form, None) or cuts or is_own:
            asked += [(form, cuts, spec) for spec in specs]
    wanted.require_all_used(forms)
    questions = [_Question(form.of(spec), cuts, max_tasks) for form, cuts, spec in asked]
    entries = []
    answers = jobs.run("appraising", _answer, questions)
    for (form, _, spec), answer in zip(asked, answers, strict=True):
        if isinstance(answer, str):
            comparison.refused[form.name] = answer
            continue
        for appraisal in answer:
            # Passes of the form's own cut segments, too.
            segment = None if form.passes else appraisal.segment
            name = form.name_with(segment)
            if wanted.takes(form, segment) or name == comparison.own:
                found = form.of(spec, segment)
                comparison.specs[name] = found
                entries.append(_Entry(name, form, found, appraisal))
    return entries


def _leave_out(comparison: Comparison, entry: _Entry, by: str, value_s: float) -> None:
    size, n_tasks = _bytes_of(entry.spec), entry.appraisal.n_tasks
    comparison.pruned.append(Pruned(entry.name, size, by, value_s, n_tasks))


def _simulate_all(
    by_size: dict[int, list[_Entry]], jobs: _Jobs, comparison: Comparison, *, prune: bool
) -> None:
    """Simulate candidates in waves, the cheapest by closed form first.

    A wave ends before the next begins, so that what is pruned depends on
    nothing but the candidates.
    """
    queues = {
        size: sorted(entries, key=lambda e: (e.name != comparison.own, e.appraisal.price_s))
        for size, entries in by_size.items()
    }
    for n in (*WAVES, None) if prune else (None,):
        wave: list[_Entry] = []
        for size, queue in queues.items():
            times = [t for (_, other), t in comparison.makespans.items() if other == size]
            if prune and times:
                queue[:] = _promising(queue, min(times), comparison)
            wave += queue[:n]
            del queue[:n]
        _simulate(wave, jobs, comparison)


def _promising(queue: Sequence[_Entry], best_s: float, comparison: Comparison) -> list[_Entry]:
    """Return the candidates that may be better; note the others as pruned."""
    kept = []
    for entry in queue:
        if entry.appraisal.bound_s > best_s:
            _leave_out(comparison, entry, "bound", entry.appraisal.bound_s)
        elif entry.appraisal.price_s > SAFETY * best_s:
            _leave_out(comparison, entry, "price", entry.appraisal.price_s)
        else:
            kept.append(entry)
    return kept


def _simulate(wave: Sequence[_Entry], jobs: _Jobs, comparison: Comparison) -> None:
    """Simulate candidates, equal plans once."""
    by_plan: dict[tuple[int, str], list[_Entry]] = {}
    for entry in wave:
        by_plan.setdefault((_bytes_of(entry.spec), entry.appraisal.identity), []).append(entry)
    # The longest jobs first, so that none is left alone at the end.
    groups = sorted(by_plan.values(), key=lambda group: -group[0].appraisal.n_tasks)
    prices = jobs.run("simulating", price, [group[0].spec for group in groups])
    for group, found in zip(groups, prices, strict=True):
        for entry in group:
            if found.makespan_s is None:
                comparison.refused[entry.name] = found.refusal or ""
            else:
                place = entry.name, _bytes_of(entry.spec)
                comparison.makespans[place] = found.makespan_s
                if found.pcie_reads is not None:
                    comparison.pcie_reads[place] = found.pcie_reads
