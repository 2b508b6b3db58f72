"""Which variants are worth measuring at a size: those the cost model finds near the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol, TypeVar

from collplan.planner.errors import AlgorithmError
from collplan.select.auto import estimate as appraise
from collplan.select.candidates import SEGMENTS, Form
from collplan.select.comparison import MAX_TASKS, SAFETY, WAVES
from collplan.select.estimate import Estimate as Appraisal
from collplan.select.sweep import price
from collplan.specs import PlanSpec
from collplan.specs.request import MESSAGES
from collplan.tune.variants import all_variants, family_of

LEAST_KEPT: Final = 3
"""So many are measured whatever the model says, if there are as many."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Spread(Protocol):
    """Applies a function to items, wherever there is room; results come in their order."""

    def __call__(
        self, function: Callable[[Item], Result], items: Sequence[Item], /
    ) -> list[Result]:
        """Return the results of all items."""


def one_by_one(function: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
    """Apply a function to items here, in turn."""
    return [function(item) for item in items]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form at one size.

    Parameters
    ----------
    name : str
        What tables call it.
    family : str
        Its form's.
    spec : PlanSpec
        What to compile.
    predicted_s : float or None
        What the simulator says, in s; None where it was not asked.
    """

    name: str
    family: str
    spec: PlanSpec
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What to measure at one size.

    Parameters
    ----------
    kept : list of Candidate
        The best predicted first.
    skipped : int
        How many others there are: different plans, that can be had.
    refused : dict of str to str
        Why there is no such plan.
    twins : dict of str to str
        The candidate whose plan another one's equals.
    """

    kept: list[Candidate]
    skipped: int
    refused: dict[str, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    form: Form
    spec: PlanSpec
    appraisal: Appraisal

    @property
    def is_bounded(self) -> bool:
        """Return whether its closed forms hold: of messages that no pass rewrites."""
        return self.spec.transport == MESSAGES and not self.form.passes


@dataclass(frozen=True, slots=True)
class _Question:
    form: Form
    spec: PlanSpec


def list_candidates(spec: PlanSpec, spread: Spread = one_by_one) -> Selection:
    """Return every candidate for a spec's collective, none predicted and none left out.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    spread : callable
        Where to appraise.
    """
    entries, selection = _appraise_all(spec, spread)
    kept = [Candidate(e.name, family_of(e.form), e.spec) for e in entries]
    return Selection(kept, 0, selection.refused, selection.twins)


def select(
    spec: PlanSpec, keep_within: float, spread: Spread = one_by_one, at_most: int | None = None
) -> Selection:
    """Return the candidates whose predicted time is near the best.

    Kept are all within a factor of the best, the best of every family that is not
    hopeless, and `LEAST_KEPT` in any case. Segments are kept where they are faster
    than the same in whole messages.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    keep_within : float
        Keep those within so many times the best predicted time.
    spread : callable
        Where to appraise and simulate; the result does not depend on it.
    at_most : int, optional
        Keep no more, the best predicted.
    """
    entries, selection = _appraise_all(spec, spread)
    limit = max(SAFETY, keep_within)
    makespans = _simulate_near(entries, limit, keep_within, spread)
    for entry in entries:
        if makespans.get(entry.name, 0.0) is None:
            selection.refused[entry.name] = "it cannot be compiled"
    found = {e.name: s for e in entries if (s := makespans.get(e.name)) is not None}
    gaining = [e for e in entries if e.name in found and _gains(e, found)]
    ordered = sorted(gaining, key=lambda entry: found[entry.name])
    best_s = min(found.values(), default=0.0)
    kept: list[Candidate] = []
    families: set[str] = set()
    for entry in ordered:
        family, predicted_s = family_of(entry.form), found[entry.name]
        is_first = family not in families and predicted_s <= limit * best_s
        if predicted_s <= keep_within * best_s or is_first or len(kept) < LEAST_KEPT:
            kept.append(Candidate(entry.name, family, entry.spec, predicted_s))
            families.add(family)
    kept = kept[:at_most]
    n_there = sum(entry.name not in selection.refused for entry in entries)
    return Selection(kept, n_there - len(kept), selection.refused, selection.twins)


def _gains(entry: _Entry, found: Mapping[str, float]) -> bool:
    """Return whether it is whole, or faster than the same in whole messages."""
    whole_s = found.get(entry.form.name, inf)
    return entry.name == entry.form.name or found[entry.name] < whole_s


def _appraise_all(spec: PlanSpec, spread: Spread) -> tuple[list[_Entry], Selection]:
    """Return every different plan by its first name, and what is refused or the same."""
    forms = all_variants(spec)
    answers = spread(_appraise, [_Question(form, spec) for form in forms])
    first: dict[tuple[str, ...], str] = {}
    entries: list[_Entry] = []
    selection = Selection([], 0)
    for form, answer in zip(forms, answers, strict=True):
        if isinstance(answer, str):
            selection.refused[form.name] = answer
            continue
        for appraisal in answer:
            # Passes of its own cut segments, too.
            segment = None if form.passes else appraisal.segment
            name, made = form.name_with(segment), form.of(spec, segment)
            identity = (appraisal.identity, str(made.transport), *map(str, form.passes))
            if first.setdefault(identity, name) == name:
                entries.append(_Entry(name, form, made, appraisal))
            else:
                selection.twins[name] = first[identity]
    return entries, selection


def _appraise(question: _Question) -> tuple[Appraisal, ...] | str:
    """Appraise a form, wherever this runs; a refusal is its reason."""
    form = question.form
    segments = SEGMENTS if form.has_segments else ()
    try:
        return appraise(form.of(question.spec), segments, MAX_TASKS)
    except AlgorithmError as error:
        return str(error)


def _makespan(spec: PlanSpec) -> float | None:
    return price(spec).makespan_s


def _simulate_near(
    entries: Sequence[_Entry], limit: float, keep_within: float, spread: Spread
) -> dict[str, float | None]:
    """Simulate in waves, the cheapest by closed form first, what may be near the best."""
    found: dict[str, float | None] = {}
    queue = [e for e in entries if e.appraisal.n_tasks <= MAX_TASKS]
    queue.sort(key=lambda entry: entry.appraisal.price_s)
    for n in (*WAVES, None):
        best_s = min((s for s in found.values() if s is not None), default=None)
        if best_s is not None:
            queue = [
                entry
                for entry in queue
                if not entry.is_bounded
                or (
                    entry.appraisal.bound_s <= keep_within * best_s
                    and entry.appraisal.price_s <= limit * best_s
                )
            ]
        wave, queue = queue[:n], queue[len(queue[:n]) :]
        makespans = spread(_makespan, [entry.spec for entry in wave])
        found.update(zip((entry.name for entry in wave), makespans, strict=True))
    return found
