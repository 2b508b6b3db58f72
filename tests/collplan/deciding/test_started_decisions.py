"""Decisions for non-blocking calls: which plans need no meeting of the ranks, and gain enough."""

from __future__ import annotations

import pytest

from collplan.deciding.calls import CollectiveCall
from collplan.deciding.started_decisions import LEAST_BYTES, decide_start, why_too_small
from collplan.tables.sweep import NodePlacement
from tables_everywhere import planning_table


def test_tables_for_messages_name_the_best_that_needs_no_shared_memory() -> None:
    from collplan.deciding.started_decisions import passing_messages
    from collplan.tables.table import parse_table
    from tables_everywhere import NOWHERE, sweep

    found = sweep("allreduce", 2, True)
    found["choices"]["shared"] = {"algorithms": "linear", "transport": "shared"}
    for point in found["points"]:
        point["times"]["shared"] = {"median_s": 1e-9, "low_s": 1e-9, "high_s": 1e-9, "n": 3}
        point["winner"] = "shared"
    # Where nothing but native is known besides, and where that is faster.
    found["points"][1]["times"].pop("ring")
    table = parse_table({"fingerprint": NOWHERE.model_dump(), "sweeps": [found]})
    winners = [point.winner for point in passing_messages(table).sweeps[0].points]
    assert winners == ["reduce_bcast", "native"]
    assert passing_messages(passing_messages(table)) == passing_messages(table)


@pytest.mark.parametrize(("least", "is_planned"), [(None, False), (1 << 20, False), (8, True)])
def test_small_calls_have_plans_from_the_size_that_the_user_gives(
    least: int | None, is_planned: bool
) -> None:
    call = CollectiveCall("allreduce", 64, op="sum", element="float64")
    placement = NodePlacement.of_nodes([0, 0])
    decision = decide_start(planning_table(2), call, placement, least)
    assert decision.choice.native != is_planned
    if not is_planned:
        assert decision.why == f"non-blocking: below {LEAST_BYTES} bytes a plan gains too little"


def test_the_blocks_of_all_ranks_count() -> None:
    call = CollectiveCall("allgather", LEAST_BYTES // 4)
    assert why_too_small(call, 3, None, is_measured=False) is not None
    assert why_too_small(call, 4, None, is_measured=False) is None
    assert why_too_small(call, 3, None, is_measured=True) is None
