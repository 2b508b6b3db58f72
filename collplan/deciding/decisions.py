"""Decisions for calls between a plan and the native collective, with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any, Final

from collplan.deciding.calls import CollectiveCall
from collplan.specs import COLLECTIVES, Machine, PlanSpec
from collplan.tables.sweep import NATIVE, NATIVE_LABEL, NodePlacement, Sweep
from collplan.tables.table import Decision, TuningTable

NATIVE_CALLS: Final = 2
"""Least number of equal native calls before a plan is made, unless the user gives another one."""
MAKING_S: Final = 50e-3
"""Time in seconds that making a plan usually takes."""
LEAST_VECTOR_GAIN_S: Final = 150e-6
"""Gain per call in seconds, according to the table, above which agreeing on counts pays."""


def native_decision(why: str, native_s: float | None = None) -> Decision:
    """Return the decision to run a call natively.

    Parameters
    ----------
    why : str
        Reason, as shown to users.
    native_s : float, optional
        Measured time of the native collective in seconds.
    """
    return Decision(NATIVE, NATIVE_LABEL, why, native_s, native_s)


def whys_native(table: TuningTable | None, *, is_blocking: bool, are_tried: bool) -> dict[str, str]:
    """Return the kinds of collectives of which a table never chooses a plan, with the reasons.

    Vector kinds are decided by the sweeps of their regular kinds. A sweep of a vector kind is not
    used, as it applies only to the counts that it measured.

    Parameters
    ----------
    table : TuningTable or None
    is_blocking : bool
        Whether the kinds are for blocking calls. If True, sweeps of calls that overlap
        computation are ignored.
    are_tried : bool
        Whether ranks that no sweep covers may try plans, see `Comm`. Calls whose counts differ per
        rank are never tried.
    """
    if table is None:
        return dict.fromkeys(COLLECTIVES, "no table")
    sweeps: dict[str, list[Sweep]] = {}
    for sweep in table.sweeps:
        if sweep.complete and not (is_blocking and sweep.computation_s is not None):
            sweeps.setdefault(sweep.collective, []).append(sweep)
    found: dict[str, str] = {}
    for kind, traits in COLLECTIVES.items():
        if traits.has_edges:
            found[kind] = "calls on graphs are MPI's own"
            continue
        regular = traits.regular or kind
        is_vector = traits.regular is not None
        gain_s = _most_gain_s(sweeps.get(regular, []))
        if regular not in sweeps:
            found[kind] = f"no sweep of {regular}"
        elif table.level_of(regular, True) != "ranks" or table.level_of(regular, False) != "ranks":
            continue  # a call may have to run by a plan
        elif gain_s is None:
            if is_vector or not are_tried:
                found[kind] = f"native won all sizes of {regular}{sweeps[regular][0].beside}"
        elif is_vector and is_blocking and gain_s <= LEAST_VECTOR_GAIN_S:
            found[kind] = f"each plan of {regular} gains less than agreeing on counts costs"
    return found


def _most_gain_s(sweeps: Sequence[Sweep]) -> float | None:
    """Return the largest gain per call of a plan that won; None if none did.

    A plan that won at one size may be chosen at a size at which it was not measured. Its gain is
    then unknown, for which infinity is returned.
    """
    won = {
        point.winner
        for sweep in sweeps
        for point in sweep.points
        if not sweep.choices[point.winner].native
    }
    gains = [inf] if won else []
    if all(won | {NATIVE_LABEL} <= point.times.keys() for one in sweeps for point in one.points):
        gains = [
            point.times[NATIVE_LABEL].median_s - point.times[label].median_s
            for sweep in sweeps
            for point in sweep.points
            for label in won
        ]
    return max(gains, default=None)


def decide(
    table: TuningTable, call: CollectiveCall, placement: NodePlacement, *, overlaps: bool = False
) -> Decision:
    """Return the decision of a table for a call, which is the same on all ranks.

    Parameters
    ----------
    table : TuningTable
    call : CollectiveCall
        Signature of the call. Vector kinds use the sweep of their regular kind.
    placement : NodePlacement
        Placement of the ranks on nodes.
    overlaps : bool
        Whether the call is non-blocking, so that it may overlap computation.
    """
    kind, n_ranks = COLLECTIVES[call.kind].regular or call.kind, placement.n_ranks
    decision = table.decide(
        *(kind, call.n_bytes, n_ranks, placement, call.commutes),
        overlaps=overlaps,
        rounds=call.rounds,
    )
    return decision if kind == call.kind else replace(decision, why=f"{kind} {decision.why}")


def if_paid(call: CollectiveCall, decision: Decision) -> Decision:
    """Return the decision for a blocking call, whose ranks may have to agree on counts.

    The decision is native if the counts of the call differ per rank, and if the gain of the
    plan is known and is at most `LEAST_VECTOR_GAIN_S`. Otherwise, the given decision is returned.
    """
    gain_s = decision.gain_s
    is_paid = gain_s is None or gain_s > LEAST_VECTOR_GAIN_S or decision.needs_plan
    if COLLECTIVES[call.kind].regular is None or decision.choice.native or is_paid:
        return decision
    why = f"{decision.label} gains less than agreeing on counts costs"
    return native_decision(why, decision.native_s)


def calls_before(decision: Decision, native_calls: int | None) -> int:
    """Return the number of equal native calls before a plan is made, the same on all ranks.

    With the plan, these calls would have saved the time that it takes to make it. A program that
    makes few calls therefore does not pay for plans. If no call may be native, it is 0.

    Parameters
    ----------
    decision : Decision
        Decision for the plan.
    native_calls : int or None
        Number that the user gives, which is returned.
    """
    if decision.needs_plan:
        return 0
    if native_calls is not None:
        return native_calls
    gain_s = decision.gain_s
    if gain_s is None or gain_s <= 0:
        return NATIVE_CALLS
    return max(NATIVE_CALLS, ceil(MAKING_S / gain_s))


def why_later(decision: Decision, native_calls: int) -> str:
    """Return the reason why the first `native_calls` calls of a signature run natively."""
    return f"a plan takes time to make: {decision.label} from call {native_calls + 1} on"


def is_tried(call: CollectiveCall, decision: Decision, n_ranks: int, share: float) -> bool:
    """Return whether a trial may run plans that the cost model predicts for a blocking call.

    Parameters
    ----------
    call : CollectiveCall
    decision : Decision
        Decision of the table.
    n_ranks : int
        Number of ranks.
    share : float
        Largest time of trials, as a fraction of the time of native calls.
    """
    has_counts = COLLECTIVES[call.kind].regular is not None
    return not decision.is_known and share > 0 and n_ranks > 1 and not has_counts


def calls_before_trial(native_calls: int | None) -> int:
    """Return the number of native calls before ranks meet about a trial for the first time.

    Parameters
    ----------
    native_calls : int or None
        Number of native calls before a plan that the user gives.
    """
    return NATIVE_CALLS if native_calls is None else max(1, native_calls)


def why_not_tried(decision: Decision) -> str:
    """Return the reason of native calls before a trial, given the decision of the table."""
    return f"{decision.why}; a trial of plans has not paid so far"


def spec_of(decision: Decision, machine: Machine, collective: Any) -> PlanSpec:
    """Return the spec of the plan of a decision, at the level of `reproducible` that it needs."""
    return decision.choice.plan_spec(machine, collective).with_level(decision.level)


def own_block_at(spec: PlanSpec, rank: int) -> int:
    """Return the offset in elements of a rank's MPI_IN_PLACE input in its receive buffer."""
    collective = spec.collective
    if collective.receives_blocks and not collective.sends_blocks:
        return int(collective.block_layout(spec.machine.n_ranks)[1][rank])
    return 0
