"""Performance guidelines: a native collective must not be slower than a composition of others.

References
----------
.. [1] Träff, Hunold, Decomposing MPI Collectives for Exploiting Multi-lane Communication,
   2020, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

from mpi4py import MPI

from collplan.measure.run import Case, Oracle, WrongElement, case_for_spec, find_truth, try_to_bind
from collplan.measure.statistics import Summary, is_faster, summarize
from collplan.measure.timing import Call, nothing, time_in_turns
from collplan.planner.lowering.select import NATIVELY
from collplan.planner.plan.phases import NATIVE
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec
from collplan.specs.request import AUTO, MESSAGES

OURS: Final = {"hierarchical": "hierarchical", "full_lane": "full_lane", "best": "auto"}
"""Decompositions by candidate that use collplan's algorithms; every guideline has them."""
MOCK_UPS: Final = {f"{name} {NATIVE}": name for name in ("hierarchical", "full_lane")}
"""Decompositions by candidate that use the MPI library's own collectives."""


@dataclass(frozen=True, slots=True)
class GuidelineRow:
    """Times of one candidate for one size.

    Parameters
    ----------
    bytes : int
        Bytes of the collective's count.
    candidate : str
        Name of the candidate, or `NATIVE`.
    summary : Summary
        Summary of the times of the slowest rank of each repetition.
    factor : float
        Ratio of the native median to the candidate's; above 1, the candidate is faster.
    faster : bool
        Whether the candidate is right, and faster than the native call beyond noise.
    violation : bool
        Whether the candidate is faster and consists of the library's own collectives only,
        so that the library could have done the same.
    wrong : WrongElement or None
        First wrong element of the result; None if there is none.
    plan : str or None
        Decomposition, algorithms and passes of the compiled plan; None for `NATIVE`.
    """

    bytes: int
    candidate: str
    summary: Summary
    factor: float
    faster: bool
    violation: bool
    wrong: WrongElement | None
    plan: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a dictionary that JSON can hold."""
        fields = asdict(self) | self.summary.to_json()
        del fields["summary"]
        return fields | {"wrong": None if self.wrong is None else str(self.wrong)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A candidate that cannot be compiled or bound for a size, with the reason in one line."""

    bytes: int
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guideline:
    """Rows and refusals of all sizes, and the source of the right result for each size."""

    rows: list[GuidelineRow]
    refused: list[Refusal]
    checked_against: list[Oracle]

    @property
    def is_correct(self) -> bool:
        """Return whether every candidate computed the collective."""
        return all(row.wrong is None for row in self.rows)


def standard_candidates(spec: PlanSpec) -> dict[str, PlanSpec]:
    """Return candidates by name: those of collplan's algorithms, then those of native calls.

    Examples
    --------
    >>> list(standard_candidates(PlanSpec(collective={"kind": "barrier"})))
    ['hierarchical', 'full_lane', 'best', 'hierarchical native', 'full_lane native']
    """
    own = spec.replace(passes=())
    mock_up = own.replace(algorithms=NATIVELY, transport=MESSAGES)
    return {
        name: own.replace(decomposition=value, algorithms=AUTO) for name, value in OURS.items()
    } | {name: mock_up.replace(decomposition=value) for name, value in MOCK_UPS.items()}


def describe_plan(plan: Plan) -> str:
    """Return the decomposition, algorithms and passes of a plan in one line."""
    spec = plan.spec
    assert spec is not None
    return "; ".join(map(str, (spec.decomposition, spec.algorithms, *spec.passes)))


def measure_guideline(
    comm: MPI.Intracomm,
    spec: PlanSpec,
    candidates: Mapping[str, PlanSpec],
    counts: Sequence[int],
    *,
    repetitions: int,
    advance: Call = nothing,
    watch: Callable[[str, Call], object] = lambda _, call: call(),
) -> Guideline:
    """Time the native collective and candidates in turns, and check each candidate once.

    Collective over `comm`. Each candidate is bound once per size and run many times.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator with as many ranks as the spec's machine.
    spec : PlanSpec
        Spec of the collective.
    candidates : mapping of str to PlanSpec
        Specs of the same collective by name. Their counts are replaced by `counts`.
    counts : sequence of int
        Counts of the collective, one for each size.
    repetitions : int
        Number of repetitions, at least 2.
    advance : callable
        Function called after each repetition.
    watch : callable
        Function that takes a candidate's name and call, and runs the call that is checked.
        It can count events during the call.

    Returns
    -------
    Guideline
        Times and refusals of all sizes, the same on every rank.
    """
    found = Guideline([], [], [])
    for count in counts:
        case = case_for_spec(spec.with_count(count), comm)
        sized = {name: other.with_count(count) for name, other in candidates.items()}
        _measure_size(found, case, sized, repetitions, advance, watch)
    return found


def _measure_size(
    found: Guideline,
    case: Case,
    candidates: Mapping[str, PlanSpec],
    repetitions: int,
    advance: Call,
    watch: Callable[[str, Call], object],
) -> None:
    """Measure one size, and add its rows and refusals to `found`."""
    n_bytes = case.collective.count * case.collective.itemsize
    calls: dict[str, Call] = {}
    plans: dict[str, str] = {}
    wrong: dict[str, WrongElement | None] = {}
    with ExitStack() as stack:
        calls[NATIVE] = native = stack.enter_context(case.natively())
        for name, spec in candidates.items():
            made = try_to_bind(spec, case, case.bind)
            if isinstance(made, str):
                found.refused.append(Refusal(n_bytes, name, made))
            else:
                plans[name] = describe_plan(made[0])
                calls[name] = stack.enter_context(made[1])
        oracle, truth = find_truth(case, native)
        for name, call in calls.items():
            case.fill()
            watch(name, call)
            wrong[name] = None if name == NATIVE else case.compare(truth)
        times = time_in_turns(
            case.comm, [*calls.values()], repetitions, prepare=case.refill, advance=advance
        )
    found.checked_against.append(oracle)
    summaries = dict(zip(calls, map(summarize, times), strict=True))
    native_summary = summaries[NATIVE]
    for name, summary in summaries.items():
        is_right_and_faster = wrong[name] is None and is_faster(summary, native_summary)
        calls_natives = name in candidates and candidates[name].algorithms == NATIVELY
        row = GuidelineRow(
            bytes=n_bytes,
            candidate=name,
            summary=summary,
            factor=native_summary.median_s / summary.median_s,
            faster=is_right_and_faster,
            violation=is_right_and_faster and calls_natives,
            wrong=wrong[name],
            plan=plans.get(name),
        )
        found.rows.append(row)
