"""Decisions between plans and native calls: what gains enough, and when a plan is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collplan.deciding.decisions import (
    LEAST_VECTOR_GAIN_S,
    MAKING_S,
    NATIVE_CALLS,
    calls_before,
    if_paid,
    whys_native,
)
from collplan.tables.sweep import Choice
from collplan.tables.table import Decision, parse_table
from tables_everywhere import planning_table


def test_calls_are_native_until_they_would_have_paid_for_a_plan() -> None:
    def decision(native_s: float | None, chosen_s: float | None) -> Decision:
        return Decision(Choice(algorithms="ring"), "ring", "", native_s, chosen_s)

    assert calls_before(decision(2e-3, 1e-3), None) == MAKING_S / 1e-3
    assert calls_before(decision(1.0, 0.5), None) == NATIVE_CALLS
    for unknown in (decision(None, 1e-3), decision(1e-3, 1e-3), decision(1e-3, 2e-3)):
        assert calls_before(unknown, None) == NATIVE_CALLS
    assert calls_before(decision(2e-3, 1e-3), 0) == 0


def test_a_table_says_which_kinds_it_never_plans() -> None:
    document = planning_table(2, ("bcast", "reduce", "scan")).model_dump()
    document["sweeps"] += planning_table(2, ("gather",), native_s=1e-4).model_dump()["sweeps"]
    for sweep in document["sweeps"]:
        for point in sweep["points"]:
            if sweep["collective"] == "scan":
                point["winner"] = "native"
            if sweep["collective"] == "gather":  # both plans are measured at both sizes
                point["times"] |= {"binomial": point["times"][point["winner"]]}
                point["times"] |= {"linear": point["times"]["binomial"]}
        sweep["complete"] = sweep["collective"] != "reduce"
        if sweep["collective"] == "bcast":
            sweep |= {"computation_s": 1e-3, "cores": 4}
    table = parse_table(document)
    natives = whys_native(table, is_blocking=True, are_tried=False)
    assert natives["reduce"] == "no sweep of reduce"
    assert natives["bcast"] == "no sweep of bcast"
    assert natives["scan"] == "native won all sizes of scan"
    assert natives["gatherv"] == "each plan of gather gains less than agreeing on counts costs"
    assert "gather" not in natives
    assert "scan" not in whys_native(table, is_blocking=True, are_tried=True)
    natives = whys_native(table, is_blocking=False, are_tried=False)
    assert {"bcast", "gather", "gatherv"}.isdisjoint(natives)
    assert whys_native(None, is_blocking=True, are_tried=True)["scan"] == "no table"


@pytest.mark.parametrize(
    ("kind", "gain_s", "is_kept"),
    [
        ("allgather", LEAST_VECTOR_GAIN_S / 2, True),
        ("allgatherv", LEAST_VECTOR_GAIN_S / 2, False),
        ("allgatherv", LEAST_VECTOR_GAIN_S * 2, True),
        ("allgatherv", None, True),
    ],
)
def test_plans_must_gain_more_than_agreeing_on_counts_costs(
    kind: str, gain_s: float | None, is_kept: bool
) -> None:
    choice: Any = SimpleNamespace(native=False)
    chosen_s = None if gain_s is None else 1.0
    decision = Decision(choice, "ring", "is faster", 1.0 + (gain_s or 0.0), chosen_s)
    call: Any = SimpleNamespace(kind=kind)
    found = if_paid(call, decision)
    if is_kept:
        assert found is decision
    else:
        assert found.choice.native
        assert found.why == "ring gains less than agreeing on counts costs"
        assert found.native_s == decision.native_s
