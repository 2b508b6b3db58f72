"""Compare all candidates of a collective over sizes, simulating those that may win."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, takewhile
from math import inf
from time import thread_time
from typing import Final, TypeVar

from collplan.planner.collective.bounds import Bounds, lower_bounds
from collplan.planner.memory import free_bytes
from collplan.select.candidates import (
    SEGMENTS,
    Form,
    all_forms,
    own_form,
    require_known_algorithms,
    shared_forms,
)
from collplan.select.crossovers import Crossover, choose_best, find_crossovers
from collplan.select.entries import Entry, NotEstimated, Question, estimate_all
from collplan.select.estimate import FEW_RANKS
from collplan.select.sweep import AT_ONCE, price, run_jobs
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError

SAFETY: Final = 4.0
"""Closed forms are believed to a factor: above this times the best, a candidate is pruned."""
MAX_TASKS: Final = 600_000
"""Plans of more tasks are large: they take more than a second and some hundred megabytes each."""
WAVES: Final = (3, 6)
"""Numbers of candidates per size, cheapest by closed form first, in the first wave and later."""
SECONDS: Final = 40.0
"""Default limit of the time that each processor works, in seconds."""
CERTAINTY: Final = 0.5, 0.8
"""Parts of the corrected closed form below which a makespan hardly ever is.

The first is for small plans, the second for large plans and plans of many ranks.
"""
STEADY: Final = 0.87
"""Part of the closed form, corrected by the candidate's own ratio at a size nearby, likewise."""
COARSE: Final = 3
"""Number of sizes of which one is simulated first."""
NEARBY: Final = 8
"""Largest ratio of sizes between which a candidate's ratio hardly changes."""
TOLERANCE: Final = 0.03
"""Relative gain below which a large plan is not simulated."""
LEFT_OUT: Final = ("tasks", "memory", "time")
"""Reasons for which a candidate that may be the best is not simulated."""
ESTIMATING: Final = 0.6
"""Part of the time after which no more candidates are estimated."""
LEAST_ESTIMATING_S: Final = 10.0
"""Seconds for which candidates are estimated in any case."""
TASK_S: Final = 3e-6
TASK_BYTES: Final = 600.0
"""Seconds and bytes for compiling and simulating one task."""
MEMORY_SHARE: Final = 0.5
"""Share of the free memory that simulations may take together."""

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
        ``bound``: it cannot be below `bound_s`, and another is, or, for a large plan,
        is at most `TOLERANCE` above; ``price``: another's makespan is below 1 / `SAFETY`
        of its closed form, or below `CERTAINTY` or `STEADY` of its corrected one; ``tasks``,
        ``memory``, ``time``: its plan has more tasks, or takes more memory or time, than
        there is.
    price_s : float
        What its closed form says, in seconds; 0 where even to estimate it takes
        more time or memory than there is, as are the next two.
    bound_s : float
        What its simulation cannot be below, in seconds.
    n_tasks : int
        About how many tasks it would have.
    """

    candidate: str
    bytes: int
    by: str
    price_s: float
    bound_s: float
    n_tasks: int

    @property
    def is_estimated(self) -> bool:
        """True if it has a closed form."""
        return self.n_tasks > 0


@dataclass(eq=False)
class Comparison:
    """Result of a comparison.

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
        The winner by bytes: the candidate with the least makespan, where none that
        was not simulated may be better.
    leading : dict of int to str
        The candidate with the least makespan of all simulated, by bytes.
    rivals : dict of int to list of Pruned
        Candidates that were not simulated, and are better than the leading one by more
        than `TOLERANCE` both by closed form and by bound, by bytes.
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
    leading: dict[int, str] = field(default_factory=dict)
    rivals: dict[int, list[Pruned]] = field(default_factory=dict)
    crossovers: list[Crossover] = field(default_factory=list)
    bounds: dict[int, Bounds] = field(default_factory=dict)


def compare(
    specs: Sequence[PlanSpec],
    executor: Executor | None = None,
    *,
    patterns: Sequence[str] = (),
    prune: bool = True,
    max_tasks: int | None = None,
    seconds: float | None = SECONDS,
    on_progress: Progress | None = None,
) -> Comparison:
    """Find the best candidate of every size, and where the best changes.

    Parameters
    ----------
    specs : sequence of PlanSpec
        One spec with several counts, ascending.
    executor : concurrent.futures.Executor, optional
        Where to estimate and simulate; the result does not depend on it.
    patterns : sequence of str
        Names or families of candidates, with wildcards; all where empty. The
        spec's own is always among them.
    prune : bool
        Whether to leave out what cannot be, or by far is not, the best.
    max_tasks : int, optional
        Plans of more tasks are left out, pruning or not.
    seconds : float, optional
        About how long every processor estimates and simulates, in seconds of its
        own; None for as long as it takes. What is left then, the dearest by closed
        form, is left out.
    on_progress : callable, optional
        Called as jobs are done.

    Returns
    -------
    Comparison

    Raises
    ------
    CollplanError
        If a pattern fits no candidate, or the spec names an algorithm that does not exist.
    """
    require_known_algorithms(specs[-1])
    comparison = Comparison([_bytes_of(spec) for spec in specs])
    jobs = _Jobs(executor, on_progress, seconds)
    forms = _forms(specs[-1], comparison)
    entries = _list_entries(specs, forms, patterns, jobs, comparison)
    by_size = _within_limits(entries, comparison, max_tasks, jobs.most_effort())
    _simulate_all(by_size, jobs, comparison, prune=prune)
    for spec in specs:
        comparison.bounds[_bytes_of(spec)] = lower_bounds(spec)
    _name_winners(comparison)
    comparison.crossovers = _crossovers(comparison, jobs)
    return comparison


def _crossovers(comparison: Comparison, jobs: _Jobs) -> list[Crossover]:
    """Return where the best changes between neighboring sizes."""
    too_large = {(one.candidate, one.bytes) for one in comparison.pruned if one.by in LEFT_OUT}
    priced = {(p.candidate, p.bytes): p.price_s for p in comparison.pruned if p.price_s > 0}
    return find_crossovers(
        comparison.sizes,
        comparison.best,
        {name: comparison.specs[name] for name in set(comparison.best.values())},
        lambda some: [one.makespan_s for one in jobs.run("crossovers", price, some, len(some))],
        priced | comparison.makespans,
        too_large,
    )


def _within_limits(
    entries: Sequence[Entry], comparison: Comparison, max_tasks: int | None, most_effort: float
) -> dict[int, list[Entry]]:
    """Return candidates by size; note those that are too large as pruned."""
    by_size: dict[int, list[Entry]] = {size: [] for size in comparison.sizes}
    for entry in entries:
        if max_tasks is not None and entry.estimate.n_tasks > max_tasks:
            _leave_out(comparison, entry, "tasks")
        elif entry.estimate.effort > most_effort:
            _leave_out(comparison, entry, "memory")
        else:
            by_size[_bytes_of(entry.spec)].append(entry)
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


def _bytes_of(spec: PlanSpec) -> int:
    return int(spec.collective.count * spec.collective.itemsize)


def _forms(spec: PlanSpec, comparison: Comparison) -> list[Form]:
    """Return all forms; the spec's own first where it is none of the others."""
    forms = list(all_forms(spec))
    forms, own = [*forms, *shared_forms(spec, forms)], own_form(spec)
    if own is None:
        return forms
    wanted = own.of(spec)
    for form in forms:
        for segment in _segments(form):
            if form.of(spec, segment) == wanted:
                comparison.own = form.name_with(segment)
                return forms
    comparison.own = own.name
    return [own, *forms]


def _takes(patterns: Sequence[str], form: Form, segment: int | None) -> bool:
    """Return whether a candidate is selected, by its name or family."""
    return not patterns or any(_fits(pattern, form, segment) for pattern in patterns)


def _fits(pattern: str, form: Form, segment: int | None) -> bool:
    names = (form.name_with(segment), form.method.decomposition.name)
    return any(fnmatchcase(name, pattern) for name in names)


def _require_all_used(patterns: Sequence[str], forms: Sequence[Form]) -> None:
    for pattern in patterns:
        if not any(_fits(pattern, form, size) for form in forms for size in _segments(form)):
            names = ", ".join(form.name for form in forms)
            raise CollplanError(f"--candidates: {pattern!r} fits none; there are {names}")


def _segments(form: Form) -> tuple[int | None, ...]:
    return (None, *SEGMENTS) if form.has_segments else (None,)


@dataclass
class _Jobs:
    """Runs jobs, tells how far they are, and knows for how long they may go on."""

    executor: Executor | None
    on_progress: Progress | None
    seconds: float | None
    used_s: float = 0.0

    @property
    def n_workers(self) -> int:
        """Return how many jobs run at once."""
        names = ("num_workers", "_max_workers")
        return max(1, *(int(getattr(self.executor, name, None) or 1) for name in names))

    @property
    def left_s(self) -> float:
        """Return the seconds that are left of all processors together."""
        return inf if self.seconds is None else self.seconds * self.n_workers - self.used_s

    def most_effort(self) -> float:
        """Return the effort of the largest plan that there is memory for."""
        return MEMORY_SHARE * free_bytes() / self.n_workers / TASK_BYTES

    def estimate(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> tuple[Result, ...]:
        """Run a function on items while there is time; return the results in their order."""
        each_s = inf if self.seconds is None else ESTIMATING * self.seconds
        end_s = max(LEAST_ESTIMATING_S, each_s) * self.n_workers
        in_time = takewhile(lambda _: self.used_s < end_s, items)
        return self.run("estimating", function, in_time, len(items), self.n_workers)

    def run(
        self,
        what: str,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        n: int,
        n_at_once: int = AT_ONCE,
    ) -> tuple[Result, ...]:
        """Run a function on up to `n` items; return the results in their order."""
        n_done = 0

        def count(_place: int, timed: tuple[Result, float]) -> None:
            nonlocal n_done
            n_done += 1
            self.used_s += timed[1]
            if self.on_progress is not None:
                self.on_progress(what, n_done, n)

        timed = partial(_timed, function)
        found = run_jobs(timed, items, self.executor, n_at_once=n_at_once, on_done=count)
        return tuple(result for result, _ in found)


def _timed(function: Callable[[Item], Result], item: Item) -> tuple[Result, float]:
    """Return what a function returns, and how long its thread worked for it."""
    begin = thread_time()
    return function(item), thread_time() - begin


def _list_entries(
    specs: Sequence[PlanSpec],
    forms: Sequence[Form],
    patterns: Sequence[str],
    jobs: _Jobs,
    comparison: Comparison,
) -> list[Entry]:
    """Return every candidate at every size it exists at."""
    _require_all_used(patterns, forms)
    questions: list[Question] = []
    for form in forms:
        is_own = comparison.own in {form.name_with(segment) for segment in _segments(form)}
        wanted = [size for size in _segments(form) if is_own or _takes(patterns, form, size)]
        cuts = tuple(size for size in wanted if size is not None)
        questions += [Question(form, spec, cuts) for spec in specs if wanted]
    entries = []
    for entry in estimate_all(questions, jobs.estimate, comparison.refused):
        if isinstance(entry, NotEstimated):
            form, spec = entry.question.form, entry.question.spec
            comparison.specs[form.name] = form.of(spec)
            unknown = Pruned(form.name, _bytes_of(spec), entry.by, 0.0, 0.0, 0)
            comparison.pruned.append(unknown)
        elif _takes(patterns, entry.form, entry.segment) or entry.name == comparison.own:
            comparison.specs[entry.name] = entry.spec
            entries.append(entry)
    return entries


def _leave_out(comparison: Comparison, entry: Entry, by: str) -> None:
    size, found = _bytes_of(entry.spec), entry.estimate
    comparison.pruned.append(
        Pruned(entry.name, size, by, found.price_s, found.bound_s, found.n_tasks)
    )


def _simulate_all(
    by_size: dict[int, list[Entry]], jobs: _Jobs, comparison: Comparison, *, prune: bool
) -> None:
    """Simulate candidates in waves, the cheapest by closed form first, while there is time.

    A wave ends before the next begins, so that what is pruned depends on
    nothing but the candidates, as long as time lasts. On large machines, after a first wave,
    the small plans of some sizes come before all others: what closed forms are wrong by there
    corrects them at the sizes between.
    """
    queues = {
        size: sorted(entries, key=lambda e: (e.name != comparison.own, e.estimate.price_s))
        for size, entries in by_size.items()
    }
    sizes = list(queues)
    first = sizes[::-COARSE] if prune and any(map(_is_scaled, chain(*queues.values()))) else sizes
    if len(first) < len(sizes):
        _simulate_waves(queues, by_size, jobs, comparison, prune=True, most=1)
        small = {size: [e for e in queues[size] if not _is_large(e)] for size in first}
        _simulate_waves(small, by_size, jobs, comparison, prune=True)
        for size in first:
            queues[size] = [e for e in queues[size] if _is_large(e)]
    _simulate_waves(queues, by_size, jobs, comparison, prune=prune)


def _simulate_waves(
    queues: dict[int, list[Entry]],
    by_size: dict[int, list[Entry]],
    jobs: _Jobs,
    comparison: Comparison,
    *,
    prune: bool,
    most: float = inf,
) -> None:
    """Simulate the candidates in the queues in waves, in no more than `most`."""
    n_waves = 0
    while any(queues.values()) and n_waves < most:
        n = WAVES[min(n_waves, len(WAVES) - 1)] if prune else None
        n_waves += 1
        wave: list[Entry] = []
        for size, queue in queues.items():
            if prune:
                queue[:] = _promising(queue, size, by_size, comparison)
            # Some small plans first: what they say may spare the large ones.
            small = [e for e in queue if not _is_large(e)] if n_waves <= len(WAVES) else []
            chosen = (_one_per_form(small or queue) if prune else queue)[:n]
            wave += chosen
            queue[:] = [entry for entry in queue if entry not in chosen]
        kept, late = _in_time(sorted(wave, key=_is_large), jobs.left_s)
        for entry in reversed(late):
            if kept:  # there may be time when these are done
                queues[_bytes_of(entry.spec)].insert(0, entry)
            else:
                _leave_out(comparison, entry, "time")
        _simulate(kept, jobs, comparison)


def _in_time(wave: Sequence[Entry], left_s: float) -> tuple[list[Entry], list[Entry]]:
    """Return the candidates for which enough time is left, and the others."""
    kept: list[Entry] = []
    late: list[Entry] = []
    for entry in wave:
        takes_s = TASK_S * entry.estimate.effort
        if takes_s < left_s:
            kept.append(entry)
            left_s -= takes_s
        else:
            late.append(entry)
    return kept, late


def _is_large(entry: Entry) -> bool:
    return entry.estimate.effort > MAX_TASKS


def _is_scaled(entry: Entry) -> bool:
    """Return whether a few nodes stand for the whole machine in an estimate."""
    return entry.spec.machine.n_ranks > FEW_RANKS


def _one_per_form(queue: Sequence[Entry]) -> list[Entry]:
    """Return the first candidate of each form, which says much about its other segments."""
    first: dict[str, Entry] = {}
    for entry in queue:
        first.setdefault(entry.form.name, entry)
    return list(first.values())


def _promising(
    queue: Sequence[Entry], size: int, by_size: dict[int, list[Entry]], comparison: Comparison
) -> list[Entry]:
    """Return the candidates that may be better; note the others as pruned.

    At one size, closed forms tend to be wrong by similar factors. They are multiplied by the
    least ratio of makespan to closed form among the simulated candidates of that size; or, on
    large machines, by the candidate's own ratio, where that is about known. Before the first
    simulation of a size, the candidates are put in the order of these corrected closed forms.
    """
    times = comparison.makespans
    own = _own_ratios(size, by_size, times)
    simulated = [entry for entry in by_size[size] if (entry.name, size) in times]
    best_s = min((times[entry.name, size] for entry in simulated), default=inf)
    ratios = [times[e.name, size] / e.estimate.price_s for e in simulated if e.estimate.price_s]
    least = min(ratios, default=0.0)
    kept = []
    for entry in queue:
        found = entry.estimate
        is_large = _is_large(entry) or _is_scaled(entry)
        factor = max(CERTAINTY[is_large] * least, 1 / SAFETY, STEADY * own.get(entry.name, 0.0))
        if found.bound_s > best_s or (is_large and found.bound_s >= (1 - TOLERANCE) * best_s):
            _leave_out(comparison, entry, "bound")
        elif factor * found.price_s > best_s:
            _leave_out(comparison, entry, "price")
        else:
            kept.append(entry)
    if not simulated:
        kept.sort(
            key=lambda e: (e.name != comparison.own, own.get(e.name, 1.0) * e.estimate.price_s)
        )
    return kept


def _own_ratios(
    size: int, by_size: dict[int, list[Entry]], times: dict[tuple[str, int], float]
) -> dict[str, float]:
    """Return about the ratio of makespan to closed form of candidates on large machines, by name.

    That is a candidate's ratio at a neighboring size, or at this size with other segments.
    """
    sizes = sorted(by_size)
    place = sizes.index(size)
    near = [other for other in sizes[max(0, place - 1) : place + 2] if other != size]
    near = [other for other in near if max(size, other) <= NEARBY * min(size, other)]
    ratios = {
        (entry.name, other): times[entry.name, other] / entry.estimate.price_s
        for other in (size, *near)
        for entry in filter(_is_scaled, by_size[other])
        if (entry.name, other) in times and entry.estimate.price_s
    }
    here = [entry for entry in by_size[size] if (entry.name, size) in ratios]
    by_form = {entry.form.name: ratios[entry.name, size] for entry in here}
    own = {e.name: by_form[e.form.name] for e in by_size[size] if e.form.name in by_form}
    return own | {name: ratio for (name, other), ratio in ratios.items() if other != size}


def _simulate(wave: Sequence[Entry], jobs: _Jobs, comparison: Comparison) -> None:
    """Simulate candidates, equal plans once."""
    by_plan: dict[tuple[int, str], list[Entry]] = {}
    for entry in wave:
        by_plan.setdefault((_bytes_of(entry.spec), entry.estimate.identity), []).append(entry)
    # The longest jobs first, so that none is left alone at the end.
    groups = sorted(by_plan.values(), key=lambda group: -group[0].estimate.effort)
    first = [group[0].spec for group in groups]
    prices = jobs.run("simulating", price, first, len(first))
    for group, found in zip(groups, prices, strict=True):
        for entry in group:
            if found.lacks_memory:
                _leave_out(comparison, entry, "memory")
            elif found.makespan_s is None:
                comparison.refused[entry.name] = found.refusal or ""
            else:
                place = entry.name, _bytes_of(entry.spec)
                comparison.makespans[place] = found.makespan_s
                if found.pcie_reads is not None:
                    comparison.pcie_reads[place] = found.pcie_reads
