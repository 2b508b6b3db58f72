"""Best candidate at each size, and crossovers between sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, isqrt
from typing import Final

from collplan.planner.passes.shared_memory.layout import aligned_elements
from collplan.specs import PlanSpec

CLOSE: Final = 1.25
"""Ratio of two sizes below which no sizes between them are simulated."""
ENCLOSING: Final = CLOSE**0.45
"""Factor by which two sizes lie below and above a crossover that is expected between them, unless
they are rounded."""
STEPS: Final = 6
"""Smallest number of steps between two sizes for which sizes are rounded to whole steps."""
LEAST: Final = 5
"""Smallest number of steps that a size has if it is rounded, so that it changes by 10 % at most."""
MIDDLE_EVERY: Final = 3
"""Interval of rounds in which the middle is simulated, so that the two sizes certainly converge."""

Simulate = Callable[[Sequence[PlanSpec]], Sequence[float | None]]
"""Function that returns the makespan of every spec in seconds, or None if it was not simulated."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """Two sizes between which the best candidate changes.

    Parameters
    ----------
    before, after : str
        The better candidate at the lower size, and the better one at the higher size.
    low_bytes, high_bytes : int
        Sizes at which both were simulated, or else neighboring sizes of the comparison.
    is_bisected : bool
        Whether sizes between those of the comparison were simulated.
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

    Of equal candidates (such as a choice of the planner and the same algorithm by name), the one
    that remains the best for most of the next sizes is taken, then the first in `names`.

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
    times: Mapping[tuple[str, int], float],
    excluded: Collection[tuple[str, int]] = (),
) -> list[Crossover]:
    """Find the sizes at which the best candidate changes, by simulations at sizes between.

    Parameters
    ----------
    sizes : sequence of int
        All sizes that were compared, ascending.
    best : mapping of int to str
        The best candidate by bytes. There is no crossover next to a size without one.
    specs : mapping of str to PlanSpec
        The winners, at any size.
    simulate : callable
        Simulates many specs at once.
    times : mapping of (str, int) to float
        Makespans at the sizes that were compared. The first sizes to be simulated are near the
        one at which two candidates are equally fast if times grow evenly.
    excluded : collection of (str, int)
        Candidates that are too large at a size. Crossovers next to it are not refined.

    Returns
    -------
    list of Crossover
        Crossovers in ascending order. A third candidate that is the best only between two sizes
        is not found; compare more sizes to see it.
    """
    found = [
        _Bracket(best[low], best[high], low, high)
        for low, high in pairwise(sizes)
        if low in best and high in best and best[low] != best[high]
    ]
    open_ones = [
        one
        for one in found
        if (one.before, one.high) not in excluded and (one.after, one.low) not in excluded
    ]
    for one in open_ones:
        one.compare_ends(times)
    while open_ones:
        open_ones = _narrow(open_ones, specs, simulate)
    return [Crossover(*one.names, one.low, one.high, one.is_bisected) for one in found]


def _narrow(
    brackets: Sequence[_Bracket], specs: Mapping[str, PlanSpec], simulate: Simulate
) -> list[_Bracket]:
    """Simulate sizes in all brackets, and return those in which both candidates have times."""
    tried = [(one, size) for one in brackets for size in one.between(specs[one.before])]
    pairs = [
        specs[name].with_count(size // specs[name].collective.itemsize)
        for one, size in tried
        for name in one.names
    ]
    made = iter(simulate(pairs))
    narrowed = [
        one
        for (one, size), before_s, after_s in zip(tried, made, made, strict=True)
        if one.narrow(size, before_s, after_s)
    ]
    return list(dict.fromkeys(narrowed))


@dataclass(eq=False)
class _Bracket:
    """Two sizes: at `low`, the candidate `before` is better, and at `high`, `after` is.

    The gap at a size is the time of `after` minus that of `before` in seconds; None if unknown.
    """

    before: str
    after: str
    low: int
    high: int
    low_gap: float | None = None
    high_gap: float | None = None
    n_rounds: int = 0
    is_bisected: bool = False

    @property
    def names(self) -> tuple[str, str]:
        return self.before, self.after

    def compare_ends(self, times: Mapping[tuple[str, int], float]) -> None:
        """Compute the gaps at both sizes from known times."""
        self.low_gap, self.high_gap = (
            _gap(times.get((self.before, size)), times.get((self.after, size)))
            for size in (self.low, self.high)
        )

    def between(self, spec: PlanSpec) -> list[int]:
        """Return the next sizes to simulate, in whole elements; none if both ends are close.

        Times grow about linearly with the size. The first two sizes are just below and just above
        the crossing of both lines. If they enclose the crossover, it is found.
        """
        itemsize = spec.collective.itemsize
        low, high = self.low // itemsize, self.high // itemsize
        if high <= CLOSE * low or high - low < 2:
            return []
        self.n_rounds += 1
        before, after = self.low_gap or 0.0, self.high_gap or 0.0
        if before > 0 > after and self.n_rounds % MIDDLE_EVERY:
            crossing = low + before / (before - after) * (high - low)
            step = _step(crossing, high - low, spec)
            below = round(crossing / ENCLOSING / step) * step
            above = min(round(crossing * ENCLOSING / step), floor(CLOSE * below / step)) * step
            inside = [size * itemsize for size in (below, above) if low < size < high]
            if inside:
                return inside
        middle = isqrt(low * high) if low else high // 2
        step = _step(middle, high - low, spec)
        return [max(low + 1, min(high - 1, round(middle / step) * step)) * itemsize]

    def narrow(self, size: int, before_s: float | None, after_s: float | None) -> bool:
        """Move the end at which the same candidate wins, and return whether both have times."""
        gap = _gap(before_s, after_s)
        if gap is None:
            return False
        self.is_bisected = True
        if size > self.high:
            return True  # the smaller one of two sizes is the new end
        if gap > 0:
            self.low, self.low_gap = size, gap
        else:
            self.high, self.high_gap = size, gap
        return True


def _step(size: float, width: int, spec: PlanSpec) -> int:
    """Return the step to which a size between two others is rounded; all are in elements.

    Ranks share whole steps evenly, if the size and the range, of `width` elements, have enough of
    them. Plans of such sizes are often the same but for the size of elements; see
    `scaling.shrink`.
    """
    machine, itemsize = spec.machine, spec.collective.itemsize
    ranks = machine.n_ranks, max(machine.node_to_n_ranks)
    steps = {n * each for n in ranks for each in (1, aligned_elements(itemsize))}
    fitting = (one for one in steps if STEPS * one <= width and LEAST * one <= size)
    return max(fitting, default=1)


def _gap(before_s: float | None, after_s: float | None) -> float | None:
    return None if before_s is None or after_s is None else after_s - before_s
