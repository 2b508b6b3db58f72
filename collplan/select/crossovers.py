"""Best candidate at each size, and crossovers between sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Final

from collplan.specs import PlanSpec

CLOSE: Final = 1.25
"""Sizes of less than this ratio are not refined."""
ENCLOSING: Final = CLOSE**0.45
"""Factor by which two sizes lie below and above a crossover that is expected between them."""
MIDDLE_EVERY: Final = 3
"""In every third round the middle is simulated, so that the two sizes surely come closer."""

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
    times: Mapping[tuple[str, int], float],
    excluded: Collection[tuple[str, int]] = (),
) -> list[Crossover]:
    """Find where the best changes: by simulating the two at sizes between.

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
    times : mapping of (str, int) to float
        Makespans, or estimates, at the sizes that were compared. The first sizes to be
        simulated are near the one at which two are equally fast by these times.
    excluded : collection of (str, int)
        Candidates that are too large at a size: no crossover is refined there.

    Returns
    -------
    list of Crossover
        Ascending. Where a third is best between the two, the crossover is
        theirs all the same; ask for more sizes to see it.
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
        tried = [
            (one, size)
            for one in open_ones
            for size in one.between(specs[one.before].collective.itemsize)
        ]
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
        open_ones = list(dict.fromkeys(narrowed))
    return [Crossover(*one.names, one.low, one.high, one.is_bisected) for one in found]


@dataclass(eq=False)
class _Bracket:
    """Two sizes: at `low` the candidate `before` is the better one, at `high` it is `after`.

    The gap of a size is by how many seconds `after` is slower, None where it is unknown.
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
        """Compute the gaps from the times that are known at both sizes."""
        self.low_gap, self.high_gap = (
            _gap(times.get((self.before, size)), times.get((self.after, size)))
            for size in (self.low, self.high)
        )

    def between(self, itemsize: int) -> list[int]:
        """Return the next sizes to simulate, in whole elements; none where the two are close.

        Times grow about linearly with the size. Where the lines cross, one size below and one
        above come first: if they enclose the crossover, it is found.
        """
        low, high = self.low // itemsize, self.high // itemsize
        if high <= CLOSE * low or high - low < 2:
            return []
        self.n_rounds += 1
        before, after = self.low_gap or 0.0, self.high_gap or 0.0
        if before > 0 > after and self.n_rounds % MIDDLE_EVERY:
            crossing = low + before / (before - after) * (high - low)
            sizes = round(crossing / ENCLOSING), round(crossing * ENCLOSING)
            inside = [size * itemsize for size in sizes if low < size < high]
            if inside:
                return inside
        middle = isqrt(low * high) if low else high // 2
        return [max(low + 1, min(high - 1, middle)) * itemsize]

    def narrow(self, size: int, before_s: float | None, after_s: float | None) -> bool:
        """Move the end at which the same candidate wins; return whether both have times."""
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


def _gap(before_s: float | None, after_s: float | None) -> float | None:
    return None if before_s is None or after_s is None else after_s - before_s
