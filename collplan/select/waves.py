"""Simulation of candidates in waves, the cheapest first, without those that cannot win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from math import inf, log2
from statistics import median
from typing import Final

from collplan.planner.errors import AlgorithmError
from collplan.select.compared import TOLERANCE, Comparison, leave_out
from collplan.select.cuts import Cut
from collplan.select.entries import Entry
from collplan.select.estimate import FEW_RANKS, estimate
from collplan.select.jobs import PLAN_EFFORT, TASK_S, Jobs
from collplan.specs import PlanSpec, Transport

SAFETY: Final = 4.0
"""Error factor that is assumed of closed forms: a candidate is pruned if its closed form is more
than this many times the best makespan."""
MAX_TASKS: Final = 600_000
"""Number of tasks above which a plan is large: it takes more than a second and some hundred MB."""
WAVES: Final = (3, 6)
"""Numbers of candidates per size, cheapest by closed form first, in the first wave and later."""
CAUTION: Final = (1_500, 0.25), (6_000, 0.4), (50_000, 0.7), (400_000, 0.9), (inf, 1.0)
"""Pairs of an effort and a factor. For plans up to this effort, the makespan is not expected to be
below the factor times the corrected closed form.

Factors of small plans are low, because their simulation costs little.
"""
STEADY: Final = 0.87
"""Factor as in `CAUTION`, for a closed form that is corrected by the candidate's ratio nearby."""
COARSE: Final = 3
"""Interval of the sizes that are simulated first on large machines."""
DEAR: Final = 1.0
"""Gain, relative to the expected time, for which a plan may take the whole budget of tasks."""
NEARBY: Final = 8
"""Largest ratio of sizes between which a candidate's ratio hardly changes."""

Class = tuple[str, Transport, Cut]
"""Decomposition, transport and cut of similar candidates."""


def simulate_all(
    by_size: dict[int, list[Entry]], jobs: Jobs, comparison: Comparison, *, prune: bool
) -> None:
    """Simulate candidates in waves, the cheapest by closed form first, until the time is over.

    A wave ends before the next one begins. Therefore the pruned candidates depend only on the
    candidates, as long as there is time. On large machines, the small plans of some sizes follow
    the first wave. The errors of their closed forms correct those of the sizes between them.
    """
    queues = {
        size: sorted(entries, key=lambda e: (_comes_later(e, comparison), e.estimate.price_s))
        for size, entries in by_size.items()
    }
    sizes = list(queues)
    first = sizes[::-COARSE] if prune and any(map(_is_scaled, chain(*queues.values()))) else sizes
    if len(first) < len(sizes):
        simulate_waves(queues, by_size, jobs, comparison, prune=True, most=1)
        small = {size: [e for e in queues[size] if not _is_large(e)] for size in first}
        simulate_waves(small, by_size, jobs, comparison, prune=True)
        for size in first:
            queues[size] = [e for e in queues[size] if _is_large(e)]
    simulate_waves(queues, by_size, jobs, comparison, prune=prune)


def simulate_waves(
    queues: dict[int, list[Entry]],
    by_size: dict[int, list[Entry]],
    jobs: Jobs,
    comparison: Comparison,
    *,
    prune: bool,
    most: float = inf,
) -> None:
    """Simulate the candidates in the queues in waves, in no more than `most`."""
    n_waves = 0
    while any(queues.values()) and n_waves < most:
        n = WAVES[min(n_waves, len(WAVES) - 1)]
        n_waves += 1
        wave: list[Entry] = []
        for size, queue in queues.items():
            if prune:
                queue[:] = _promising(queue, size, by_size, comparison, jobs)
            # Small plans come first, as their makespans may make large ones unnecessary.
            small = [e for e in queue if not _is_large(e)] if n_waves <= len(WAVES) else []
            chosen = _first(small or queue, n) if prune else list(queue)
            wave += chosen
            queue[:] = [entry for entry in queue if entry not in chosen]
        late = simulate_in_time(sorted(wave, key=_is_large), jobs, comparison)
        for entry in reversed(late):
            if len(late) < len(wave):  # they may take less time than expected
                queues[entry.size].insert(0, entry)
            else:
                leave_out(comparison, entry, "time")


def simulate_in_time(wave: Sequence[Entry], jobs: Jobs, comparison: Comparison) -> list[Entry]:
    """Simulate the candidates for which the remaining time suffices, and return the others."""
    fits = _in_time([entry.estimate.effort for entry in wave], jobs.left_s)
    _simulate([*compress(wave, fits)], jobs, comparison)
    return [entry for entry, is_kept in zip(wave, fits, strict=True) if not is_kept]


def price_in_time(
    specs: Sequence[PlanSpec], what: str, left_s: float, jobs: Jobs
) -> list[float | None]:
    """Return the makespans of specs in seconds, in order.

    It is None for a spec without plan, or if the remaining `left_s` seconds do not suffice.
    """
    efforts = [0 if left_s == inf else _effort_of(spec) for spec in specs]
    fits = _in_time(efforts, left_s)
    found = iter(jobs.price(what, [*compress(specs, fits)], [*compress(efforts, fits)]))
    return [next(found).makespan_s if is_kept else None for is_kept in fits]


def _effort_of(spec: PlanSpec) -> int:
    """Return the effort of a spec's plan; 0 if there is none."""
    try:
        return estimate(spec)[0].effort
    except AlgorithmError:
        return 0


def _in_time(efforts: Sequence[int], left_s: float) -> list[bool]:
    """Return, per plan, whether the remaining time suffices for it and for those before it."""
    fits = []
    for effort in efforts:
        needed_s = TASK_S * (PLAN_EFFORT + effort)
        fits.append(needed_s < left_s)
        left_s -= needed_s * fits[-1]
    return fits


def _is_large(entry: Entry) -> bool:
    return entry.estimate.effort > MAX_TASKS


def _is_scaled(entry: Entry) -> bool:
    """Return whether the estimate was made from a few nodes of the machine."""
    return entry.base.machine.n_ranks > FEW_RANKS


def _comes_later(entry: Entry, comparison: Comparison) -> bool:
    """Return False for the spec's own candidate, and for other references with a small plan."""
    is_reference = entry.name in comparison.references
    return not is_reference or (entry.name != comparison.own and _is_large(entry))


def _first(queue: Sequence[Entry], n: int) -> list[Entry]:
    """Return the candidates of the first `n` plans, and all candidates with the same plans.

    The plans have different forms. Of each form, only the best segment size so far is taken. If
    its plan is large, the smallest plan of the form is taken instead, which has the longest
    segments. The trend from longer to shorter segments may then show that the larger plans cannot
    win.
    """
    of_form: dict[str, Entry] = {}
    for entry in queue:
        taken = of_form.setdefault(entry.form.name, entry)
        if _is_large(taken) and entry.estimate.effort < taken.estimate.effort:
            of_form[entry.form.name] = entry
    chosen: set[str] = set()
    for entry in of_form.values():
        if len(chosen) < n:
            chosen.add(entry.estimate.identity)
    return [entry for entry in queue if entry.estimate.identity in chosen]


@dataclass(frozen=True)
class Ratios:
    """Ratios of makespan to closed form at a size.

    Parameters
    ----------
    own : dict of str to float
        Ratio of each candidate on a large machine, by name; see `_own_ratios`.
    of_class : dict of Class to list of float
        Ratios of the simulated candidates of each class.
    of_cuts : dict of str to dict of int to float
        Ratios of the simulated candidates in segments, by form and segment size in bytes.
    """

    own: dict[str, float]
    of_class: dict[Class, list[float]]
    of_cuts: dict[str, dict[int, float]]

    @classmethod
    def at(
        cls, size: int, by_size: dict[int, list[Entry]], times: dict[tuple[str, int], float]
    ) -> Ratios:
        """Return the ratios at a size."""
        of_class: dict[Class, list[float]] = {}
        of_cuts: dict[str, dict[int, float]] = {}
        for entry in by_size[size]:
            if (entry.name, size) in times and entry.estimate.price_s:
                ratio = times[entry.name, size] / entry.estimate.price_s
                of_class.setdefault(_class_of(entry), []).append(ratio)
                if isinstance(entry.cut, int):
                    of_cuts.setdefault(entry.form.name, {})[entry.cut] = ratio
        return cls(_own_ratios(size, by_size, times), of_class, of_cuts)

    def alike(self, entry: Entry) -> list[float]:
        """Return the ratios of the most similar candidates.

        These are the ones of its class; if there are none, of its decomposition, or all.
        """
        wanted = _class_of(entry)
        of_decomposition = [
            ratio
            for (decomposition, *_), ratios in self.of_class.items()
            if decomposition == wanted[0]
            for ratio in ratios
        ]
        every = list(chain(*self.of_class.values()))
        return self.of_class.get(wanted) or of_decomposition or every

    def least(self, entry: Entry) -> float:
        """Return a factor to the closed form below which the makespan is not expected.

        It follows from the least ratio of similar candidates. If the plan is large and its form has
        a trend, it follows from the trend, and is as much higher as leaves out plans that would be
        at most 3 % better (`TOLERANCE`).

        Over a topology, candidates share links to different degrees, which closed forms do not
        consider. Therefore the ratios of other candidates are not used.
        """
        if entry.base.machine.network.topology is not None:
            return 1 / SAFETY
        certainty = next(part for most, part in CAUTION if entry.estimate.effort <= most)
        least = certainty * min(self.alike(entry), default=0.0)
        trend = self._trend(entry)
        if trend is not None and _is_large(entry):
            least = trend / (1 - TOLERANCE)
        return max(least, 1 / SAFETY, STEADY * self.own.get(entry.name, 0.0))

    def likely(self, entry: Entry) -> float:
        """Return the expected ratio of makespan to closed form."""
        found = self.own.get(entry.name) or self._trend(entry)
        return found or median(self.alike(entry) or [1.0])

    def _trend(self, entry: Entry) -> float | None:
        """Return the ratio to expect from those of longer segments of the same form.

        If the ratio fell from one simulated segment size to the next shorter one, it is expected to
        fall once more by the same factor per halving, whether segments are then half as long or
        even shorter: each further halving gains less. The result is None if there is no such trend.
        """
        if not isinstance(entry.cut, int):
            return None
        known = self.of_cuts.get(entry.form.name, {})
        longer = sorted(size for size in known if size > entry.cut)
        if len(longer) < 2:
            return None
        near, far = longer[:2]
        if known[near] >= known[far]:
            return None
        return known[near] * float((known[near] / known[far]) ** (1 / log2(far / near)))


def _class_of(entry: Entry) -> Class:
    method = entry.form.method
    return method.decomposition.name, method.transport, entry.estimate.cut


def _promising(
    queue: Sequence[Entry],
    size: int,
    by_size: dict[int, list[Entry]],
    comparison: Comparison,
    jobs: Jobs,
) -> list[Entry]:
    """Return the candidates that may be near the best, most promising first; note the others.

    If the budget is a number of tasks, a plan that takes all of it must promise `DEAR` more than
    one that takes nothing. On large machines few plans fit into a budget, of which the most
    promising comes first.

    At one size, the closed forms of similar candidates tend to have similar errors. Simulated
    makespans are used to correct them.
    """
    times = comparison.makespans
    ratios = Ratios.at(size, by_size, times)
    known = (times.get((entry.name, size), inf) for entry in by_size[size])
    most_s = comparison.within * min(known, default=inf)
    kept = []
    for entry in queue:
        found = entry.estimate
        is_large = _is_large(entry) or _is_scaled(entry)
        if found.bound_s > most_s or (is_large and found.bound_s >= (1 - TOLERANCE) * most_s):
            leave_out(comparison, entry, "bound")
        elif ratios.least(entry) * found.price_s > most_s:
            leave_out(comparison, entry, "price")
        else:
            kept.append(entry)

    def order(entry: Entry) -> tuple[bool, float]:
        budget = inf if jobs.effort is None or _is_scaled(entry) else jobs.effort
        share = entry.estimate.effort / budget
        expected_s = ratios.likely(entry) * entry.estimate.price_s
        return _comes_later(entry, comparison), expected_s * (1 + DEAR * share)

    return sorted(kept, key=order)


def _own_ratios(
    size: int, by_size: dict[int, list[Entry]], times: dict[tuple[str, int], float]
) -> dict[str, float]:
    """Return the ratios of candidates on large machines at a neighboring size, by name."""
    sizes = sorted(by_size)
    place = sizes.index(size)
    near = [other for other in sizes[max(0, place - 1) : place + 2] if other != size]
    near = [other for other in near if max(size, other) <= NEARBY * min(size, other)]
    return {
        entry.name: times[entry.name, other] / entry.estimate.price_s
        for other in near
        for entry in filter(_is_scaled, by_size[other])
        if (entry.name, other) in times and entry.estimate.price_s
    }


def _simulate(wave: Sequence[Entry], jobs: Jobs, comparison: Comparison) -> None:
    """Simulate candidates. Equal plans are simulated once."""
    by_plan: dict[tuple[int, str], list[Entry]] = {}
    for entry in wave:
        by_plan.setdefault((entry.size, entry.estimate.identity), []).append(entry)
    first = [group[0] for group in by_plan.values()]
    efforts = [entry.estimate.effort for entry in first]
    prices = jobs.price("simulating", [entry.spec for entry in first], efforts)
    for group, found in zip(by_plan.values(), prices, strict=True):
        for entry in group:
            if found.lacks_memory:
                leave_out(comparison, entry, "memory")
            elif found.makespan_s is None:
                comparison.refused[entry.name] = found.refusal or ""
            else:
                place = entry.name, entry.size
                comparison.makespans[place] = found.makespan_s
                if found.pcie_reads is not None:
                    comparison.pcie_reads[place] = found.pcie_reads
