"""Simulate candidates in waves, the cheapest first, and leave out those that cannot win."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import inf
from typing import Final

from collplan.select.compared import TOLERANCE, Comparison, bytes_of, leave_out
from collplan.select.entries import Entry
from collplan.select.estimate import FEW_RANKS
from collplan.select.jobs import Jobs
from collplan.select.sweep import price

SAFETY: Final = 4.0
"""Closed forms are believed to a factor: above this times the best, a candidate is pruned."""
MAX_TASKS: Final = 600_000
"""Plans of more tasks are large: they take more than a second and some hundred megabytes each."""
WAVES: Final = (3, 6)
"""Numbers of candidates per size, cheapest by closed form first, in the first wave and later."""
CERTAINTY: Final = 0.45, 0.8
"""Parts of the corrected closed form below which a makespan hardly ever is.

The first is for small plans, the second for large plans and plans of many ranks.
"""
STEADY: Final = 0.87
"""Part of the closed form, corrected by the candidate's own ratio at a size nearby, likewise."""
COARSE: Final = 3
"""Number of sizes of which one is simulated first."""
NEARBY: Final = 8
"""Largest ratio of sizes between which a candidate's ratio hardly changes."""
TASK_S: Final = 3e-6
"""Seconds for compiling and simulating one task."""


def simulate_all(
    by_size: dict[int, list[Entry]], jobs: Jobs, comparison: Comparison, *, prune: bool
) -> None:
    """Simulate candidates in waves, the cheapest by closed form first, while there is time.

    A wave ends before the next begins, so that what is pruned depends on
    nothing but the candidates, as long as time lasts. On large machines, after a first wave,
    the small plans of some sizes come before all others: what closed forms are wrong by there
    corrects them at the sizes between.
    """
    queues = {
        size: sorted(entries, key=lambda e: (_comes_later(e, comparison), e.estimate.price_s))
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
    jobs: Jobs,
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
                queues[bytes_of(entry.spec)].insert(0, entry)
            else:
                leave_out(comparison, entry, "time")
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


def _comes_later(entry: Entry, comparison: Comparison) -> bool:
    """Return False for the spec's own candidate, and for native if its plan is small."""
    is_reference = entry.name in comparison.references
    return not is_reference or (entry.name != comparison.own and _is_large(entry))


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
            leave_out(comparison, entry, "bound")
        elif factor * found.price_s > best_s:
            leave_out(comparison, entry, "price")
        else:
            kept.append(entry)
    if not simulated:
        kept.sort(
            key=lambda e: (
                _comes_later(e, comparison),
                own.get(e.name, 1.0) * e.estimate.price_s,
            )
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


def _simulate(wave: Sequence[Entry], jobs: Jobs, comparison: Comparison) -> None:
    """Simulate candidates, equal plans once."""
    by_plan: dict[tuple[int, str], list[Entry]] = {}
    for entry in wave:
        by_plan.setdefault((bytes_of(entry.spec), entry.estimate.identity), []).append(entry)
    # The longest jobs first, so that none is left alone at the end.
    groups = sorted(by_plan.values(), key=lambda group: -group[0].estimate.effort)
    first = [group[0].spec for group in groups]
    prices = jobs.run("simulating", price, first, len(first))
    for group, found in zip(groups, prices, strict=True):
        for entry in group:
            if found.lacks_memory:
                leave_out(comparison, entry, "memory")
            elif found.makespan_s is None:
                comparison.refused[entry.name] = found.refusal or ""
            else:
                place = entry.name, bytes_of(entry.spec)
                comparison.makespans[place] = found.makespan_s
                if found.pcie_reads is not None:
                    comparison.pcie_reads[place] = found.pcie_reads
