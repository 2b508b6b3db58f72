"""Records of a comparison: makespans, winners, and the reasons why candidates were left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from collplan.executors.cost.time_bound import TimeBound
from collplan.planner.plan.views import view
from collplan.select.candidates import call_of
from collplan.select.crossovers import Crossover
from collplan.select.entries import Entry
from collplan.specs import Method, PlanSpec
from collplan.specs.collectives.collective_base import Reproducible

TOLERANCE: Final = 0.03
"""Relative gain below which a large plan is not simulated."""
LEFT_OUT: Final = ("tasks", "memory", "time")
"""Reasons for which a candidate that may be the best is not simulated."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """A candidate that was not simulated at a size.

    Parameters
    ----------
    candidate : str
        Name of the candidate.
    bytes : int
        Size in bytes.
    by : str
        The reason. ``bound``: its makespan is at least `bound_s`, and another candidate takes
        less, or, if its plan is large, at most `TOLERANCE` more. ``price``: another candidate's
        makespan is below 1 / `SAFETY` of its closed form, or below `CAUTION` or `STEADY` of the
        corrected one. ``tasks``, ``memory``, ``time``: its plan would exceed the limit of tasks,
        the free memory, or the limit of time.
    price_s : float
        Time by closed form in seconds. This and the next two are 0 if there was not enough time
        or memory for an estimate.
    bound_s : float
        Lower bound of the makespan in seconds.
    n_tasks : int
        Approximate number of tasks.
    """

    candidate: str
    bytes: int
    by: str
    price_s: float
    bound_s: float
    n_tasks: int

    @property
    def is_estimated(self) -> bool:
        """Return whether the candidate has a closed form."""
        return self.n_tasks > 0


@dataclass
class Default:
    """Default algorithm of a library at a size.

    Parameters
    ----------
    runs : str
        The library's name of its algorithm, with options.
    remark : str
        Difference between the priced plan and the library's algorithm, or the reason why there
        is no such plan.
    method : Method or None
        The method that does the same; None if there is none.
    makespan_s : float or None
        Simulated time in seconds.
    estimate_s : float or None
        Time by closed form in seconds, if the plan is too large to simulate.
    refusal : str or None
        The reason why there is no such plan.
    """

    runs: str
    remark: str
    method: Method | None
    makespan_s: float | None = None
    estimate_s: float | None = None
    refusal: str | None = None

    @property
    def time_s(self) -> float | None:
        """Return the makespan in seconds, or the estimate if there is no makespan."""
        return self.estimate_s if self.makespan_s is None else self.makespan_s


class LevelCost(NamedTuple):
    """The best simulated candidate at a level of `reproducible` and a size.

    Parameters
    ----------
    candidate : str
        Name of the candidate.
    makespan_s : float
        Simulated time in seconds.
    found_at : str
        Level at which it was found: the level itself, or a stronger one.
    """

    candidate: str
    makespan_s: float
    found_at: Reproducible


@dataclass(eq=False)
class Comparison:
    """Result of a comparison.

    Parameters
    ----------
    sizes : list of int
        Sizes in bytes, ascending.
    specs : dict of str to PlanSpec
        Spec of every candidate at the largest size at which it exists, by name.
    own : str or None
        Name of the candidate that the spec itself describes.
    others : tuple of str
        Further candidates that the caller gave.
    makespans : dict of (str, int) to float
        Simulated times in seconds, by candidate and bytes.
    pcie_reads : dict of (str, int) to int
        Number of reads of queue pairs by all adapters, by candidate and bytes, if the network
        has a `nic`.
    pruned : list of Pruned
        Candidates that were not simulated.
    refused : dict of str to str
        Reasons why candidates do not exist, by name.
    best : dict of int to str
        The winner by bytes: the candidate with the least makespan, if no candidate that was
        not simulated may be better.
    leading : dict of int to str
        The candidate with the least makespan of all simulated, by bytes.
    rivals : dict of int to list of Pruned
        Candidates that were not simulated, and are better than the leading one by more
        than `TOLERANCE` both by closed form and by bound, by bytes.
    crossovers : list of Crossover
        Pairs of sizes between which the best candidate changes, ascending.
    bounds : dict of int to TimeBound
        Lower bounds of the makespan of any plan, by bytes.
    defaults : dict of str to dict of int to Default
        Default algorithms of MPI libraries, by library with its version, and bytes.
    installed : str or None
        The library that is installed with this Python, if it is one of these.
    within : float
        Factor of the least makespan within which candidates are of interest.
    levels : dict of str to dict of int to LevelCost
        The best candidate at each level of `reproducible`, by bytes; empty if levels were not
        compared.
    level : str or None
        Level of the candidates; None if association changes no bit of the results.
    """

    sizes: list[int]
    specs: dict[str, PlanSpec] = field(default_factory=dict)
    own: str | None = None
    others: tuple[str, ...] = ()
    makespans: dict[tuple[str, int], float] = field(default_factory=dict)
    pcie_reads: dict[tuple[str, int], int] = field(default_factory=dict)
    pruned: list[Pruned] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    best: dict[int, str] = field(default_factory=dict)
    leading: dict[int, str] = field(default_factory=dict)
    rivals: dict[int, list[Pruned]] = field(default_factory=dict)
    crossovers: list[Crossover] = field(default_factory=list)
    bounds: dict[int, TimeBound] = field(default_factory=dict)
    defaults: dict[str, dict[int, Default]] = field(default_factory=dict)
    installed: str | None = None
    within: float = 1.0
    levels: dict[Reproducible, dict[int, LevelCost]] = field(default_factory=dict)
    level: Reproducible | None = None

    def __repr__(self) -> str:
        """Return a short text, because the tables are too long to read."""
        return f"<Comparison: {len(self.specs)} candidates at {len(self.sizes)} sizes>"

    def _repr_html_(self) -> str:
        """Return the best candidates of every size for notebooks."""
        table: str = view("comparison_html", self)
        return table

    @property
    def references(self) -> tuple[str, ...]:
        """Return the candidates to compare with: the spec's, further ones, and MPI's own call."""
        own = () if self.own is None else (self.own,)
        return tuple(dict.fromkeys((*own, *self.others, self.call)))

    @property
    def call(self) -> str:
        """Return the name of MPI's own call, which is a candidate; empty without candidates."""
        for spec in self.specs.values():
            return call_of(spec.collective.planned_kind)
        return ""

    @property
    def baseline(self) -> str:
        """Return what gains are relative to: the blocking call of a library, or `call`.

        The library is the one that is installed, or the first whose default is known.
        """
        known = [name for name, by_size in self.defaults.items() if by_size]
        return self.installed if self.installed in known else next(iter(known), self.call)

    @property
    def baseline_s(self) -> dict[int, float]:
        """Return the times of the baseline in seconds, by bytes."""
        if self.baseline not in self.defaults:
            return {size: s for (name, size), s in self.makespans.items() if name == self.call}
        times = {size: one.time_s for size, one in self.defaults[self.baseline].items()}
        return {size: seconds for size, seconds in times.items() if seconds is not None}

    @property
    def gains(self) -> dict[int, float]:
        """Return the speedup of the leading candidate over the baseline, by bytes."""
        return self._ahead_of(self.baseline_s)

    def gains_over(self, library: str) -> dict[int, float]:
        """Return the speedup of the leading candidate over a library's default, by bytes."""
        times = {size: one.time_s for size, one in self.defaults.get(library, {}).items()}
        return self._ahead_of(times)

    def _ahead_of(self, times: Mapping[int, float | None]) -> dict[int, float]:
        return {
            size: time_s / self.makespans[name, size]
            for size, name in self.leading.items()
            if (time_s := times.get(size)) and self.makespans[name, size] > 0
        }


def leave_out(comparison: Comparison, entry: Entry, by: str) -> None:
    size, found = entry.size, entry.estimate
    comparison.pruned.append(
        Pruned(entry.name, size, by, found.price_s, found.bound_s, found.n_tasks)
    )
