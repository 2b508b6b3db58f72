"""Predictions of plans on ranks that no sweep speaks for."""

from __future__ import annotations

import pytest

from collplan.deciding.predictions import MOST, _first_through_leaders, predict
from collplan.planner import compile_plan
from collplan.specs import Allreduce, Alltoall, Barrier, Bcast, PlanSpec
from collplan.specs.collectives.collective import Collective
from collplan.specs.request import MESSAGES
from collplan.tables.sweep import NodePlacement
from collplan.tables.table import TuningTable, load_table
from folders import TABLE_FILE
from tiers import some

PLACEMENTS = {
    "one node": [0] * 6,
    "even": [rank // 3 for rank in range(12)],
    "uneven": [0, 0, 0, 1, 1, 2],
    "cyclic": [0, 1, 2] * 3,
    "apart": list(range(5)),
}
COLLECTIVES = {
    "small": Allreduce(count=8),
    "large": Allreduce(count=1 << 18, op="max"),
    "bcast": Bcast(count=1 << 16, root=2),
    "alltoall": Alltoall(count=512),
    "barrier": Barrier(),
}


@pytest.fixture(scope="module")
def table() -> TuningTable:
    return load_table(TABLE_FILE)


@pytest.mark.many
@pytest.mark.parametrize("collective", COLLECTIVES.values(), ids=COLLECTIVES)
@pytest.mark.parametrize("nodes", PLACEMENTS.values(), ids=PLACEMENTS)
def test_predicted_plans_differ_and_can_be_compiled(
    table: TuningTable, nodes: list[int], collective: Collective
) -> None:
    placement = NodePlacement.of_nodes(nodes)
    n_bytes = collective.count * collective.itemsize if collective.has_data else 0
    choices = predict(table, placement, collective, n_bytes)
    assert 1 <= len(choices) <= MOST
    assert len({choice.label for choice in choices}) == len(choices)
    assert not any(choice.native for choice in choices)
    for choice in some(choices, f"{nodes} {collective.kind}"):
        plan = compile_plan(choice.plan_spec(table.machine(placement), collective), rank=0)
        assert plan.n_ranks == len(nodes)
    shares = [choice for choice in choices if choice.transport != MESSAGES]
    is_shared = max(placement.ranks_per_node) > 1
    assert bool(shares) == is_shared


def test_the_winner_of_the_nearest_sweep_is_among_them_if_it_fits(table: TuningTable) -> None:
    placement = NodePlacement.of_nodes([0] * 5)
    labels = [one.label for one in predict(table, placement, Allreduce(count=1 << 17), 1 << 20)]
    assert (
        table.decide("allreduce", 1 << 20, 4, NodePlacement.of_nodes([0] * 4), True).label in labels
    )
    assert any(label.startswith("flat transport=shared") for label in labels)


def test_shared_memory_is_tried_through_leaders_of_several_nodes_only() -> None:
    collective = {"kind": "allreduce", "count": 8}
    for nodes, name in ((1, "flat"), (2, "full_lane")):
        machine = {"nodes": nodes, "ranks_per_node": 4}
        flat = PlanSpec.model_validate({"machine": machine, "collective": collective})
        specs = [flat, flat.replace(decomposition="full_lane")]
        assert _first_through_leaders(specs).decomposition.name == name
