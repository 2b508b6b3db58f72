"""Performance guidelines: the native collective must not be slower than what composes it.

References
----------
.. [1] Träff, Hunold, Decomposing MPI Collectives for Exploiting Multi-lane Communication,
   2020, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from mpi4py import MPI

from collplan.compiling_together import compile_together
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case, Oracle, WrongElement, find_truth
from collplan.measure.statistics import Summary, is_faster, summarize
from collplan.measure.timing import Call, nothing, time_in_turns
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError
from collplan.specs.request import AUTO, FLAT

NATIVE: Final = "native"
"""Name of the MPI library's own call among the candidates."""
DECOMPOSITIONS: Final = {"hierarchical": "hierarchical", "full_lane": "full_lane", "best": "auto"}
"""The candidates every guideline has, with their decompositions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to compute the collective, by name."""

    name: str
    spec: PlanSpec


@dataclass(frozen=True, slots=True)
class GuidelineRow:
    """Times of one candidate for one size.

    Parameters
    ----------
    bytes : int
        Bytes of the collective's count.
    candidate : str
        Its name, or `NATIVE`.
    summary : Summary
        Of the repetitions' slowest ranks.
    factor : float
        How many times faster than native, by the medians.
    violation : bool
        Whether native is slower beyond noise, and the candidate right.
    wrong : WrongElement or None
        Where its result is wrong.
    plan : str or None
        What was compiled, decomposition, algorithms and passes; None for `NATIVE`.
    """

    bytes: int
    candidate: str
    summary: Summary
    factor: float
    violation: bool
    wrong: WrongElement | None
    plan: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as what JSON can hold."""
        return {
            "bytes": self.bytes,
            "candidate": self.candidate,
            **self.summary.to_json(),
            "factor": self.factor,
            "violation": self.violation,
            "wrong": None if self.wrong is None else str(self.wrong),
            "plan": self.plan,
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """A candidate that cannot serve a size, and why in one line."""

    bytes: int
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guideline:
    """All sizes' rows and refusals, and what results were compared with."""

    rows: list[GuidelineRow]
    refused: list[Refusal]
    checked_against: list[Oracle]

    @property
    def is_correct(self) -> bool:
        """Return whether every candidate computed the collective."""
        return all(row.wrong is None for row in self.rows)


def standard_candidates(spec: PlanSpec) -> list[Candidate]:
    """Return hierarchical, full-lane and the planner's best for a spec's collective."""
    return [
        Candidate(name, spec.replace(decomposition=value, algorithms=AUTO, passes=()))
        for name, value in DECOMPOSITIONS.items()
    ]


def describe_plan(plan: Plan) -> str:
    """Return in a line what a plan's spec became: decomposition, algorithms and passes."""
    spec = plan.spec
    assert spec is not None
    return "; ".join(map(str, (spec.decomposition, spec.algorithms, *spec.passes)))


def run_only(name: str, call: Call) -> None:
    """Run a candidate's checked call."""
    call()


def measure_guideline(
    comm: MPI.Intracomm,
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    counts: Sequence[int],
    *,
    repetitions: int,
    advance: Call = nothing,
    watch: Callable[[str, Call], object] = run_only,
    seed: int = 0,
) -> Guideline:
    """Time the native collective and candidates in turns, and check each once.

    Collective over `comm`. Each candidate is bound once and run many times.

    Parameters
    ----------
    comm : MPI.Intracomm
        As many ranks as the spec's machine.
    spec : PlanSpec
        Says the collective.
    candidates : sequence of Candidate
        Specs of the same collective; their count is exchanged.
    counts : sequence of int
        Counts of the collective, one for each size.
    repetitions : int
        At least 2.
    advance : callable
        Called after each repetition.
    watch : callable
        What runs the call that is checked, one of each candidate and of native,
        given its name: something may be counted around it.
    seed : int
        Of the inputs.

    Returns
    -------
    Guideline
        The same on every rank.
    """
    found = Guideline([], [], [])
    for count in counts:
        sized = [Candidate(c.name, c.spec.with_count(count)) for c in candidates]
        measured = _measure_size(
            comm, spec.with_count(count), sized, repetitions, advance, watch, seed
        )
        found.rows.extend(measured.rows)
        found.refused.extend(measured.refused)
        found.checked_against.extend(measured.checked_against)
    return found


def _measure_size(
    comm: MPI.Intracomm,
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    repetitions: int,
    advance: Call,
    watch: Callable[[str, Call], object],
    seed: int,
) -> Guideline:
    collective = spec.collective
    n_bytes = collective.count * collective.itemsize
    # Any plan of the collective knows the sizes of its buffers; a flat one there always is.
    flat = spec.replace(decomposition=FLAT, algorithms=AUTO, passes=())
    plan = compile_together(flat, comm, [])
    case = Case(plan, collective, comm, seed)
    refused: list[Refusal] = []
    calls: dict[str, Call] = {}
    plans: dict[str, str] = {}
    with ExitStack() as stack:
        native = NativeCollective(collective, comm, case.sendbuf, case.native_recvbuf)
        calls[NATIVE] = stack.enter_context(native)
        for candidate in candidates:
            bound = _bind_or_refuse(candidate, case)
            if isinstance(bound, str):
                refused.append(Refusal(n_bytes, candidate.name, bound))
            else:
                plans[candidate.name], calls[candidate.name] = bound
                stack.enter_context(bound[1])
        oracle, truth = find_truth(case, native)
        wrong: dict[str, WrongElement | None] = {}
        for name, call in calls.items():
            case.fill()
            watch(name, call)
            wrong[name] = None if name == NATIVE else case.compare(truth)
        times = time_in_turns(
            comm, [*calls.values()], repetitions, prepare=case.refill, advance=advance
        )
    summaries = dict(zip(calls, map(summarize, times), strict=True))
    native_summary = summaries[NATIVE]
    rows = [
        GuidelineRow(
            bytes=n_bytes,
            candidate=name,
            summary=summary,
            factor=native_summary.median_s / summary.median_s,
            violation=wrong[name] is None and is_faster(summary, native_summary),
            wrong=wrong[name],
            plan=plans.get(name),
        )
        for name, summary in summaries.items()
    ]
    return Guideline(rows, refused, [oracle])


def _bind_or_refuse(candidate: Candidate, case: Case) -> tuple[str, BoundPlan] | str:
    """Return what was compiled, and that bound, or why it can't be; the same on all ranks."""
    comm = case.comm
    try:
        plan = compile_together(candidate.spec, comm, [])
        return describe_plan(plan), bind(plan, comm, case.sendbuf, case.recvbuf)
    except CollplanError as error:
        # All ranks come here together: if one cannot compile or bind, all raise.
        shared: str = comm.bcast(str(error))
        return shared
