"""Best candidate at each size, and crossovers between sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Final

from collplan.specs import PlanSpec

CLOSE: Final = 1.15
"""Sizes of less than this ratio are not bisected."""

Simulate = Callable[[Sequence[PlanSpec]], Sequence[float | None]]
"""Returns the makespan of every spec in seconds, None where there is none."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """Two sizes between which the best changes.

    Parameters
    ----------
    before, after : str
        The better of these two at the lower size, and at the higher.
    low_bytes, high_bytes : int
        Sizes at which both were simulated, or the nearest that were asked for.
    is_bisected : bool
        Whether sizes between those asked for were simulated.
    """

    before: str
    after: str
    low_bytes: int
    high_bytes: int
    is_bisected: bool


def choose_best(
    sizes: Sequence[int], names: Sequence[str], makespans: Mapping[tuple[str, int], float]
) -> dict[int, str]:
    """Return the best candidate of every size.

    Of equals (a choice of the planner's and the same by name) the one that is
    best at most of the next sizes, too; then the first in `names`.

    Examples
    --------
    >>> times = {("a", 1): 1.0, ("b", 1): 1.0, ("a", 2): 3.0, ("b", 2): 2.0}
    >>> choose_best([1, 2], ["a", "b"], times)
    {1: 'b', 2: 'b'}
    """
    winners = []
    for size in sizes:
        there = {name: makespans[name, size] for name in names if (name, size) in makespans}
        least = min(there.values(), default=None)
        winners.append([name for name, time in there.items() if time == least])
    best: dict[int, str] = {}
    present: str | None = None
    for i, (size, tied) in enumerate(zip(sizes, winners, strict=True)):
        if not tied:
            continue
        if present not in tied:
            present = max(tied, key=lambda name: _run_length(name, winners[i:]))
        assert present is not None
        best[size] = present
    return best


def _run_length(name: str, winners: Sequence[Collection[str]]) -> int:
    return next((i for i, tied in enumerate(winners) if name not in tied), len(winners))


def find_crossovers(
    sizes: Sequence[int],
    best: Mapping[int, str],
    specs: Mapping[str, PlanSpec],
    simulate: Simulate,
    excluded: Collection[tuple[str, int]] = (),
) -> list[Crossover]:
    """Find where the best changes: by bisection, simulating the two at sizes between.

    Parameters
    ----------
    sizes : sequence of int
        All sizes that were compared, ascending.
    best : mapping of int to str
        The best candidate by bytes. Next to a size at which none is named there is
        no crossover.
    specs : mapping of str to PlanSpec
        The winners, at any size.
    simulate : callable
        Simulates many specs at once.
    excluded : collection of (str, int)
        Candidates that are too large at a size: no crossover is bisected there.

    Returns
    -------
    list of Crossover
        Ascending. Where a third is best between the two, the crossover is
        theirs all the same; ask for more sizes to see it.
    """
    found = []
    for low, high in pairwise(sizes):
        if low in best and high in best and best[low] != best[high]:
            found.append(Crossover(best[low], best[high], low, high, False))
    open_ones = [
        i
        for i, one in enumerate(found)
        if (one.before, one.high_bytes) not in excluded
        and (one.after, one.low_bytes) not in excluded
    ]
    while open_ones:
        middles = {i: _middle(found[i], specs) for i in open_ones}
        open_ones = [i for i in open_ones if middles[i] is not None]
        pairs = [
            specs[name].with_count((middles[i] or 0) // specs[name].collective.itemsize)
            for i in open_ones
            for name in (found[i].before, found[i].after)
        ]
        times = simulate(pairs)
        going_on = []
        for k, i in enumerate(open_ones):
            before_s, after_s = times[2 * k : 2 * k + 2]
            if before_s is not None and after_s is not None:
                found[i] = _halved(found[i], middles[i] or 0, before_s < after_s)
                going_on.append(i)
        open_ones = going_on
    return found


def _halved(one: Crossover, middle: int, before_wins: bool) -> Crossover:
    low, high = (middle, one.high_bytes) if before_wins else (one.low_bytes, middle)
    return Crossover(one.before, one.after, low, high, True)


def _middle(one: Crossover, specs: Mapping[str, PlanSpec]) -> int | None:
    """Return a size between, in whole elements; None where the two are close."""
    itemsize = specs[one.before].collective.itemsize
    low, high = one.low_bytes // itemsize, one.high_bytes // itemsize
    if high <= CLOSE * low or high - low < 2:
        return None
    middle = isqrt(low * high) if low else high // 2
    return max(low + 1, min(high - 1, middle)) * itemsize
