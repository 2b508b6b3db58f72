"""Records of a comparison: makespans, winners, and what was not simulated and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collplan.planner.collective.bounds import Bounds
from collplan.planner.plan.phases import NATIVE
from collplan.planner.plan.views import view
from collplan.select.crossovers import Crossover
from collplan.select.entries import Entry
from collplan.specs import Method, PlanSpec

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
    bytes : int
    by : str
        ``bound``: it cannot be below `bound_s`, and another is, or, for a large plan,
        is at most `TOLERANCE` above; ``price``: another's makespan is below 1 / `SAFETY`
        of its closed form, or below `CAUTION` or `STEADY` of its corrected one; ``tasks``,
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


@dataclass
class Default:
    """Default algorithm of a library at a size.

    Parameters
    ----------
    runs : str
        The library's name of its algorithm, with options.
    remark : str
        Where the price differs from what the library does, or why there is none.
    method : Method or None
        Ours for the same; None if there is none.
    makespan_s : float or None
        Seconds by simulation.
    estimate_s : float or None
        Seconds by closed form, where the plan is too large to simulate.
    refusal : str or None
        Why there is no such plan.
    """

    runs: str
    remark: str
    method: Method | None
    makespan_s: float | None = None
    estimate_s: float | None = None
    refusal: str | None = None

    @property
    def time_s(self) -> float | None:
        """Return the seconds that are known of it."""
        return self.estimate_s if self.makespan_s is None else self.makespan_s


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
    others : tuple of str
        Candidates that were given besides.
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
    defaults : dict of str to dict of int to Default
        What MPI libraries run, by their names with versions, and bytes.
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
    bounds: dict[int, Bounds] = field(default_factory=dict)
    defaults: dict[str, dict[int, Default]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return its size in words: its tables are too long to read."""
        return f"<Comparison: {len(self.specs)} candidates at {len(self.sizes)} sizes>"

    def _repr_html_(self) -> str:
        """Return the best candidates of every size for notebooks."""
        table: str = view("comparison_html", self)
        return table

    @property
    def references(self) -> tuple[str, ...]:
        """Return the candidates to compare with: the spec's own, those given besides, native."""
        own = () if self.own is None else (self.own,)
        return tuple(dict.fromkeys((*own, *self.others, NATIVE)))

    @property
    def gains(self) -> dict[int, float]:
        """Return by bytes how many times faster than native the leading candidate is."""
        return {
            size: self.makespans[NATIVE, size] / self.makespans[name, size]
            for size, name in self.leading.items()
            if (NATIVE, size) in self.makespans and self.makespans[name, size] > 0
        }

    def gains_over(self, library: str) -> dict[int, float]:
        """Return by bytes how many times faster than a library's default the leading one is."""
        times = {size: one.time_s for size, one in self.defaults.get(library, {}).items()}
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
