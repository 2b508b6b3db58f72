"""Performance guidelines: the native collective must not be slower than what composes it.

References
----------
.. [1] Träff, Hunold, Decomposing MPI Collectives for Exploiting Multi-lane Communication,
   2020, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mpi4py import MPI

from executors.mpi.bench_timing import Call, nothing, time_in_turns
from executors.mpi.binding import BoundPlan, bind
from executors.mpi.measure import (
    Case,
    Oracle,
    WrongElement,
    _from_native,
    _from_numpy,
    choose_oracle,
)
from executors.mpi.native import NativeCollective
from executors.statistics import Summary, is_slower, summarize
from planner import compile_plan
from specs import PlanSpec
from specs.errors import CollplanError
from specs.request import AUTO, FLAT

if TYPE_CHECKING:
    from planner.plan import Plan

NATIVE: Final = "native"
"""What the MPI library's own call is named among the candidates."""
DECOMPOSITIONS: Final = {"hierarchical": "hierarchical", "full_lane": "full_lane", "best": "auto"}
"""The candidates every guideline has, with their decompositions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to compute the collective, by name."""

    name: str
    spec: PlanSpec


@dataclass(frozen=True, slots=True)
class GuidelineRow:
    """What one candidate took for one size.

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
    """

    bytes: int
    candidate: str
    summary: Summary
    factor: float
    violation: bool
    wrong: WrongElement | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as what JSON can hold."""
        return {
            "bytes": self.bytes,
            "candidate": self.candidate,
            **self.summary.to_json(),
            "factor": self.factor,
            "violation": self.violation,
            "wrong": None if self.wrong is None else str(self.wrong),
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


def candidate_plan(spec: PlanSpec, rank: int) -> Plan:
    """Return a candidate's program for one rank."""
    return compile_plan(spec, rank=rank)


def measure_guideline(
    comm: MPI.Intracomm,
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    counts: Sequence[int],
    *,
    repetitions: int,
    advance: Call = nothing,
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
    seed : int
        Of the inputs.

    Returns
    -------
    Guideline
        The same on every rank.
    """
    found = Guideline([], [], [])
    for count in counts:
        sized = [Candidate(c.name, _with_count(c.spec, count)) for c in candidates]
        _measure_size(comm, _with_count(spec, count), sized, found, repetitions, advance, seed)
    return found


def _with_count(spec: PlanSpec, count: int) -> PlanSpec:
    if spec.collective.kind == "barrier":
        return spec
    return spec.replace(collective=spec.collective.replace(count=count))


def _measure_size(
    comm: MPI.Intracomm,
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    found: Guideline,
    repetitions: int,
    advance: Call,
    seed: int,
) -> None:
    """Add one size's rows and refusals to `found`."""
    collective = spec.collective
    n_bytes = collective.count * collective.itemsize
    # Any plan of the collective knows the sizes of its buffers; a flat one there always is.
    flat = spec.replace(decomposition=FLAT, algorithms=AUTO, passes=())
    case = Case(candidate_plan(flat, comm.rank), collective, comm, seed)
    with ExitStack() as stack:
        native = stack.enter_context(
            NativeCollective(collective, comm, case.sendbuf, case.native_recvbuf)
        )
        bound: dict[str, BoundPlan] = {}
        for candidate in candidates:
            plan = _bind_or_refuse(candidate, case)
            if isinstance(plan, str):
                found.refused.append(Refusal(n_bytes, candidate.name, plan))
            else:
                bound[candidate.name] = stack.enter_context(plan)
        oracle = choose_oracle(collective, comm.size)
        truth = _from_numpy(case) if oracle == "numpy" else _from_native(case, native)
        wrong: dict[str, WrongElement | None] = {}
        for name, call in bound.items():
            case.fill()
            call()
            wrong[name] = case.compare(truth)
        calls: list[Call] = [native, *bound.values()]
        times = time_in_turns(comm, calls, repetitions, prepare=case.refill, advance=advance)
    found.checked_against.append(oracle)
    summaries = dict(zip((NATIVE, *bound), map(summarize, times), strict=True))
    for name, summary in summaries.items():
        found.rows.append(_row(n_bytes, name, summary, summaries[NATIVE], wrong.get(name)))


def _bind_or_refuse(candidate: Candidate, case: Case) -> BoundPlan | str:
    """Return a candidate bound, or why that can't be; the same answer on all ranks."""
    comm = case.comm
    plan: Plan | None = None
    reason: str | None = None
    try:
        plan = candidate_plan(candidate.spec, comm.rank)
    except CollplanError as error:
        reason = str(error)
    reasons: list[str] = [text for text in comm.allgather(reason) if text is not None]
    if reasons:
        return reasons[0]
    assert plan is not None
    try:
        return bind(plan, comm, case.sendbuf, case.recvbuf)
    except CollplanError as error:
        # All ranks come here together: if one cannot bind, all raise.
        shared: str = comm.bcast(str(error))
        return shared


def _row(
    n_bytes: int, name: str, summary: Summary, native: Summary, wrong: WrongElement | None
) -> GuidelineRow:
    return GuidelineRow(
        bytes=n_bytes,
        candidate=name,
        summary=summary,
        factor=native.median_s / summary.median_s,
        violation=wrong is None and is_slower(native, summary),
        wrong=wrong,
    )
