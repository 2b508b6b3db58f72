"""Entries: forms of a collective at one size, each with the estimate of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from time import thread_time
from typing import Final, Protocol

from collplan.planner.errors import AlgorithmError, MemoryLimitError
from collplan.select.candidates import Form
from collplan.select.cuts import Cut
from collplan.select.estimate import Estimate, estimate
from collplan.select.structures import recent_structures
from collplan.specs import Decomposition, Method, PlanSpec
from collplan.specs.request import MESSAGES

MOST_TOGETHER: Final = 120
"""Largest number of questions in one job. With small jobs, workers end at about the same time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate at a size: a form, with whole or cut messages.

    Parameters
    ----------
    form : Form
        Form of the candidate.
    cut : int, Slices or None
        Size of segments in bytes, or slices of the vector; None for whole messages.
    base : PlanSpec
        Spec with the machine and collective; its method is ignored.
    estimate : Estimate
        Estimate of the plan.
    """

    form: Form
    cut: Cut
    base: PlanSpec
    estimate: Estimate

    @property
    def name(self) -> str:
        """Return the name of the candidate in tables."""
        return self.form.name_with(self.cut)

    @property
    def spec(self) -> PlanSpec:
        """Return the spec to compile, made on request because most candidates are pruned."""
        return self.form.of(self.base, self.cut)

    @property
    def size(self) -> int:
        """Return the size of the collective in bytes."""
        return bytes_of(self.base)


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """A form of a spec's collective to estimate.

    Parameters
    ----------
    form : Form
        Form to estimate.
    spec : PlanSpec
        Spec with the machine and collective; its method is ignored.
    segments : tuple of int
        Sizes of segments in bytes, which are estimated in addition to whole messages.
    max_tasks : int, optional
        Number of tasks above which the estimate has no price and no bound.
    are_sliced : bool
        Whether the vector is cut into slices instead of messages into segments.
    most_s : float
        Time in seconds above which the form is of no interest.
    """

    form: Form
    spec: PlanSpec
    segments: tuple[int, ...]
    max_tasks: int | None = None
    are_sliced: bool = False
    most_s: float = inf


@dataclass(frozen=True, slots=True)
class NotEstimated:
    """A form at a size without an estimate.

    Parameters
    ----------
    question : EstimateRequest
        Form that was to be estimated.
    by : str
        The resource that did not suffice: ``time`` or ``memory``.
    """

    question: EstimateRequest
    by: str


def bytes_of(spec: PlanSpec) -> int:
    """Return the bytes of a collective's count."""
    return int(spec.collective.count * spec.collective.itemsize)


Answer = tuple[Estimate, ...] | str | None
"""The estimates of a form, or the reason why there is no such plan, or None if memory did not
suffice."""


class Estimating(Protocol):
    """Function that estimates forms within a number of seconds."""

    def __call__(
        self, questions: Sequence[EstimateRequest], seconds: float = inf, /
    ) -> Sequence[Answer]:
        """Return answers in the order of the questions, until the time is over."""


Run = Callable[[Estimating, Sequence[Sequence[EstimateRequest]]], Sequence[Sequence[Answer]]]
"""Function that applies another one to items in order, and returns results until time is over."""


def estimate_all(
    questions: Sequence[EstimateRequest], run: Run, refused: dict[str, str]
) -> Iterator[Entry | NotEstimated]:
    """Yield the entries of all forms in order, and note the reasons of refused ones by name.

    One job estimates up to `MOST_TOGETHER` forms of one decomposition, which share blueprints.
    Forms that differ only in their count or transport follow each other, as they share messages.
    """
    together: dict[Decomposition, list[int]] = {}
    first: dict[Method, int] = {}
    for i, question in enumerate(questions):
        method = question.form.method
        together.setdefault(method.decomposition, []).append(i)
        first.setdefault(method.replace(transport=MESSAGES), i)

    def turn(i: int) -> tuple[int, int]:
        form, spec = questions[i].form, questions[i].spec
        return first[form.method.replace(transport=MESSAGES)], -spec.collective.count

    for some in together.values():
        some.sort(key=turn)
    jobs = [
        some[begin : begin + MOST_TOGETHER]
        for some in together.values()
        for begin in range(0, len(some), MOST_TOGETHER)
    ]
    answers = run(_estimate, [[questions[i] for i in some] for some in jobs])
    by_question = {
        i: answer
        for some, found in zip(jobs, answers, strict=False)
        for i, answer in zip(some, found, strict=False)
    }
    for i, question in enumerate(questions):
        form = question.form
        answer = by_question.get(i)
        if answer is None:
            yield NotEstimated(question, "memory" if i in by_question else "time")
            continue
        if isinstance(answer, str):
            refused[form.name] = answer
            continue
        for found in answer:
            # The form's own passes may also cut messages.
            cut = None if form.method.passes else found.cut
            yield Entry(form, cut, question.spec, found)


def _estimate(questions: Sequence[EstimateRequest], seconds: float = inf, /) -> Sequence[Answer]:
    """Estimate forms in a worker, one after another, until the time is over."""
    begin, answers = thread_time(), list[Answer]()
    for question in questions:
        answers.append(_answer(question))
        if thread_time() - begin > seconds:
            break
    return answers


def _answer(question: EstimateRequest) -> Answer:
    try:
        return estimate(
            question.form.of(question.spec),
            question.segments,
            question.max_tasks,
            recent_structures,
            are_sliced=question.are_sliced,
            most_s=question.most_s,
        )
    except AlgorithmError as error:
        return None if isinstance(error, MemoryLimitError) else str(error)
    except MemoryError:
        return None
