"""Resolution of ``decomposition: auto``: an earlier choice, or that of a search."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

from pydantic import ValidationError

from collplan.planner.errors import AlgorithmError
from collplan.select.remembered import recall, remember
from collplan.specs import Method, PlanSpec, SpecError
from collplan.specs.request import AUTO


@dataclass(frozen=True)
class Resolved:
    """The choice that replaces ``decomposition: auto``.

    Parameters
    ----------
    spec : PlanSpec
        Spec that names decomposition, algorithms, transport and passes.
    time_s : float
        Time in seconds that is expected for its plan.
    n_simulated, n_left : int
        Numbers of candidates that were simulated, and of those that might be better, but for
        which the budget did not suffice.
    search_s : float
        Duration of the search in seconds.
    is_remembered : bool
        Whether the choice is that of an earlier search.
    """

    spec: PlanSpec
    time_s: float
    n_simulated: int
    n_left: int
    search_s: float
    is_remembered: bool = False

    @property
    def words(self) -> str:
        """Return a line about the choice and its search."""
        from collplan.executors.cost.time_bound import time_bound

        left = f"{self.n_left} more exceed the budget" if self.n_left else "no other may win"
        when = "an earlier search" if self.is_remembered else "a search"
        least_s = time_bound(self.spec).time_s
        known = f", {self.time_s / least_s:.3g} times the lower bound" if least_s else ""
        return (
            f"decomposition auto takes {self.spec.method.label}, the best of {self.n_simulated} "
            f"simulated plans{known}; {left} ({when} of {self.search_s:.2g} s)"
        )


def resolve(spec: PlanSpec) -> PlanSpec:
    """Return `spec` with ``auto`` replaced by the best decomposition that a search finds.

    The spec's passes and transport are kept. If it has none, those of the candidate are taken. Of
    candidates with equal times, the simpler one is taken.

    Raises
    ------
    AlgorithmError
        If the spec names algorithms, because these also need a named decomposition.
    """
    return spec if spec.decomposition.name != "auto" else choose(spec).spec


@lru_cache(maxsize=64)
def choose(spec: PlanSpec) -> Resolved:
    """Return the choice for a spec with ``decomposition: auto``, from an earlier search if any.

    Raises
    ------
    AlgorithmError
        As for `resolve`.
    """
    if spec.algorithms != AUTO:
        raise AlgorithmError(
            f"algorithms: {spec.algorithms} with decomposition auto, which chooses algorithms "
            "itself; leave algorithms out, or name the decomposition"
        )
    known = recall(spec)
    with suppress(ValidationError, SpecError, TypeError, KeyError):
        if known is not None:
            method = Method.model_validate(known.pop("method"))
            return Resolved(spec.with_method(method), **known, is_remembered=True)
    # Most ranks never search, and need not import what a search does.
    from collplan.select.search import search

    begin_s = perf_counter()
    found = search(spec)
    best, n_simulated = found[0], sum(one.is_simulated for one in found)
    n_left, search_s = len(found) - n_simulated, perf_counter() - begin_s
    remember(
        spec,
        method=best.spec.method.model_dump(mode="json"),
        time_s=best.time_s,
        n_simulated=n_simulated,
        n_left=n_left,
        search_s=search_s,
    )
    return Resolved(best.spec, best.time_s, n_simulated, n_left, search_s)
