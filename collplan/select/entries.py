"""Entries: forms of a collective at one size, each with the estimate of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from collplan.planner.errors import AlgorithmError
from collplan.select.auto import estimate
from collplan.select.candidates import Form
from collplan.select.estimate import Estimate
from collplan.select.sweep import NO_MEMORY
from collplan.specs import PlanSpec


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate at a size: a form, whole or in segments of so many bytes."""

    form: Form
    segment: int | None
    spec: PlanSpec
    estimate: Estimate

    @property
    def name(self) -> str:
        """Return what tables call it."""
        return self.form.name_with(self.segment)


@dataclass(frozen=True, slots=True)
class Question:
    """A form of a spec's collective to estimate.

    Parameters
    ----------
    form : Form
    spec : PlanSpec
        Its machine and collective count.
    segments : tuple of int
        Sizes of segments in bytes, to estimate beside whole messages.
    max_tasks : int, optional
        Number of tasks above which the estimate gives up on price and bound.
    """

    form: Form
    spec: PlanSpec
    segments: tuple[int, ...]
    max_tasks: int | None = None


Answer = tuple[Estimate, ...] | str
"""The estimates of a form, or why there is no such plan."""
Run = Callable[[Callable[[Question], Answer], Sequence[Question]], Sequence[Answer]]
"""Applies a function to items, wherever there is room; results come in their order."""


def estimate_all(
    questions: Sequence[Question], run: Run, refused: dict[str, str]
) -> Iterator[Entry]:
    """Yield the entries of all forms in turn; note refusals by the names of forms."""
    for question, answer in zip(questions, run(_estimate, questions), strict=True):
        form = question.form
        if isinstance(answer, str):
            refused[form.name] = answer
            continue
        for found in answer:
            # Passes of the form's own cut segments, too.
            segment = None if form.passes else found.segment
            yield Entry(form, segment, form.of(question.spec, segment), found)


def _estimate(question: Question) -> Answer:
    """Estimate a form, wherever this runs; a refusal is its reason."""
    try:
        spec = question.form.of(question.spec)
        return estimate(spec, question.segments, question.max_tasks)
    except AlgorithmError as error:
        return str(error)
    except MemoryError:
        return NO_MEMORY
