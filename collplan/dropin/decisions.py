"""Decisions for calls: a plan or the native collective, and the reason."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from collplan.dropin.calls import CollectiveCall
from collplan.specs import COLLECTIVES, PlanSpec
from collplan.tune.sweep import NATIVE, NATIVE_LABEL, Placement
from collplan.tune.table import Decision, TuningTable

LEAST_VECTOR_GAIN_S: Final = 150e-6
"""Least gain per call, by the table, that exceeds the cost of agreeing on counts."""


def native_decision(why: str, native_s: float | None = None) -> Decision:
    """Return the decision to run natively.

    Parameters
    ----------
    why : str
        Reason, as it is shown to users.
    native_s : float, optional
        Measured time of the native collective in seconds.
    """
    return Decision(NATIVE, NATIVE_LABEL, why, native_s, native_s)


def swept_kinds(table: TuningTable | None, *, is_blocking: bool) -> set[str]:
    """Return the kinds of collectives for which a table has a complete sweep.

    Sweeps of calls that overlap computation do not count for blocking calls.
    """
    return {
        sweep.collective
        for sweep in (() if table is None else table.sweeps)
        if sweep.complete and not (is_blocking and sweep.computation_s is not None)
    }


def why_no_sweep(kinds: Collection[str], kind: str) -> str | None:
    """Return the reason why a kind has no plans; None if its regular kind has a sweep.

    Sweeps of vector kinds hold only for their own counts, which calls hardly ever have.
    """
    regular = COLLECTIVES[kind].regular or kind
    return None if regular in kinds else f"no sweep of {regular}"


def decide(
    table: TuningTable, call: CollectiveCall, placement: Placement, *, overlaps: bool = False
) -> Decision:
    """Return a table's decision for a call, which is the same on all ranks."""
    kind, n_ranks = COLLECTIVES[call.kind].regular or call.kind, placement.n_ranks
    decision = table.decide(
        kind, call.n_bytes, n_ranks, placement, call.commutes, overlaps=overlaps
    )
    return decision if kind == call.kind else replace(decision, why=f"{kind} {decision.why}")


def if_paid(call: CollectiveCall, decision: Decision) -> Decision:
    """Return a decision for blocking calls, or native if agreeing on counts costs its gain."""
    gain_s = decision.gain_s
    is_paid = gain_s is None or gain_s > LEAST_VECTOR_GAIN_S
    if COLLECTIVES[call.kind].regular is None or decision.choice.native or is_paid:
        return decision
    why = f"{decision.label} gains less than agreeing on counts costs"
    return native_decision(why, decision.native_s)


def why_later(decision: Decision, native_calls: int) -> str:
    """Return the reason why the first calls of a signature run natively."""
    return f"a plan takes time to make: {decision.label} from call {native_calls + 1} on"


def own_block_at(spec: PlanSpec, rank: int) -> int:
    """Return the offset of a rank's input in its receive buffer for MPI_IN_PLACE, in elements."""
    collective = spec.collective
    if collective.receives_blocks and not collective.sends_blocks:
        return int(collective.block_layout(spec.machine.n_ranks)[1][rank])
    return 0
