"""Decisions for non-blocking calls, which need plans that pass messages and gain enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collplan.deciding.calls import CollectiveCall, VectorCall
from collplan.deciding.decisions import decide, native_decision
from collplan.specs import COLLECTIVES
from collplan.specs.request import MESSAGES
from collplan.tables.sweep import NATIVE_LABEL, NodePlacement, Point, Sweep
from collplan.tables.table import PLANNED, Decision, TuningTable

LEAST_BYTES: Final = 1 << 20
"""Default size in bytes, over all blocks, from which non-blocking calls run by plans."""
NOT_PREPARED: Final = "needs shared memory, which the next blocking call or prepare() allocates"
LEAST_GAIN_S: Final = 150e-6
"""Gain per call in seconds, according to the table, above which a non-blocking start pays.

On two ranks of Open MPI, starting and waiting for an allreduce of 1 MiB took 133 µs more than
the blocking plan.
"""


def decide_start(
    table: TuningTable, call: CollectiveCall, placement: NodePlacement, least: int | None = None
) -> Decision:
    """Return the decision for a non-blocking call; native if a start costs more than a plan gains.

    Parameters
    ----------
    table : TuningTable
        Table whose winners pass messages where possible, see `passing_messages`.
    call : CollectiveCall
        Signature of the call.
    placement : NodePlacement
        Placement of the ranks on nodes.
    least : int, optional
        Message size in bytes, over all blocks, from which any gain suffices.
    """
    decision = decide(table, call, placement, overlaps=True)
    if decision.needs_plan:
        if decision.choice.transport != MESSAGES:
            decision = replace(decision, choice=PLANNED, label=PLANNED.label)
        return decision
    is_measured = decision.computation_s is not None
    if reason := why_too_small(call, placement.n_ranks, least, is_measured=is_measured):
        return native_decision(reason)
    if decision.choice.transport != MESSAGES:
        return native_decision(
            f"non-blocking: {decision.label} needs shared memory, and no plan without it "
            "was measured"
        )
    if not is_measured and not pays(decision, least):
        return native_decision(
            f"non-blocking: {decision.label} gains less than a non-blocking start costs"
        )
    return decision


def decide_shared(
    table: TuningTable, call: CollectiveCall, placement: NodePlacement, least: int | None = None
) -> Decision | None:
    """Return the decision for a plan through shared memory; None if no such plan may run a call.

    Parameters are those of `decide_start`, but the table has all winners.
    """
    if isinstance(call, VectorCall):
        return None
    decision = table.decide(call.kind, call.n_bytes, placement.n_ranks, placement, call.commutes)
    is_shared = decision.choice.transport != MESSAGES
    return decision if is_shared and pays(decision, least) else None


def decide_either(
    table: TuningTable,
    call: CollectiveCall,
    placement: NodePlacement,
    shared: Decision | None,
    least: int | None = None,
) -> Decision:
    """Return the decision for a non-blocking call that may run through shared memory, too.

    Parameters
    ----------
    table, call, placement, least
        Parameters of `decide_start`.
    shared : Decision or None
        Decision of `decide_shared`; None if such a plan cannot be made.

    Returns
    -------
    Decision
        That of `decide_start`; `shared` if the former is native only because no plan that passes
        messages gains enough.
    """
    decision = decide_start(table, call, placement, least)
    if shared is None or decision.needs_plan or not decision.choice.native:
        return decision
    is_measured = decide(table, call, placement, overlaps=True).computation_s is not None
    if is_measured or why_too_small(call, placement.n_ranks, least, is_measured=False):
        return decision
    return shared


def why_too_small(
    call: CollectiveCall, n_ranks: int, least: int | None, *, is_measured: bool
) -> str | None:
    """Return the reason why a call is too small for a plan; None if it is large enough.

    Parameters
    ----------
    call : CollectiveCall
    n_ranks : int
        Number of ranks.
    least : int or None
        Message size in bytes, over all blocks, from which calls run by plans; None for the default.
    is_measured : bool
        Whether the table has measurements of non-blocking calls, so that it decides.
    """
    if is_measured and least is None:
        return None
    n_blocks = n_ranks if COLLECTIVES[call.kind].has_blocks else 1
    least = LEAST_BYTES if least is None else least
    if call.n_bytes * n_blocks < least:
        return f"non-blocking: below {least} bytes a plan gains too little"
    return None


def pays(decision: Decision, least: int | None) -> bool:
    """Return whether the gain of a decision exceeds the cost of a non-blocking start.

    Return True also for native decisions, and if the user gives the `least` size.
    """
    if decision.choice.native or least is not None:
        return True
    return decision.gain_s is not None and decision.gain_s > LEAST_GAIN_S


def passing_messages(table: TuningTable) -> TuningTable:
    """Return a table whose winners are the fastest choices without shared memory.

    The native collective is one of these choices. A point at which no such choice was measured
    keeps its winner.
    """
    return table.replace(sweeps=tuple(_passing(sweep) for sweep in table.sweeps))


def _passing(sweep: Sweep) -> Sweep:
    usable = {label for label, choice in sweep.choices.items() if choice.transport == MESSAGES}
    return sweep.replace(points=tuple(_won_by(point, usable) for point in sweep.points))


def _won_by(point: Point, usable: set[str]) -> Point:
    if point.winner in usable:
        return point
    # The native collective comes first, so that it wins among equally fast choices.
    labels = sorted(usable & set(point.times), key=lambda label: label != NATIVE_LABEL)
    if not labels:
        return point
    best = min(labels, key=lambda label: point.times[label].median_s)
    return point.replace(winner=best)
