"""Schedules that state every message: what they compute, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collplan import compile as compile_plan
from collplan import parse_spec, verify
from collplan.planner.algorithms import Algorithm, registry
from collplan.planner.algorithms.building_blocks.stated_messages import Schedule, stated_rounds
from collplan.planner.errors import AlgorithmError, PlanError
from collplan.planner.plan.plan import Plan

Prove = Callable[..., Plan]


@pytest.fixture
def prove() -> Iterator[Prove]:
    """Return what proves the plan of a schedule."""
    before = {kind: dict(registry._algorithms[kind]) for kind in registry.kinds()}

    def prove(kind: str, size: int, schedule: Schedule, n_parts: int = 1, **fields: Any) -> Plan:
        registry._algorithms[kind].pop("stated", None)
        options = {} if kind == "alltoall" else {"parts": "blocks", "options": {"blocks": n_parts}}
        registry.add(
            Algorithm(
                kind,
                "stated",
                lambda group: stated_rounds(group, kind, schedule, n_parts=n_parts, rotates=True),
                by_counts=kind == "alltoall",
                **options,
            )
        )
        document = {
            "machine": {"ranks_per_node": size},
            "collective": {"kind": kind, "count": 6} | fields,
            "algorithms": "stated",
        }
        plan = compile_plan(parse_spec(document), is_proved=False)
        verify(plan)
        return plan

    yield prove
    for kind, names in before.items():
        registry._algorithms[kind] = names


EXCHANGE = [[(0, 1, (0,)), (1, 0, (0,))]]


def test_an_exchange_combines_on_both_sides(prove: Prove) -> None:
    assert len(prove("allreduce", 2, EXCHANGE).op) > 0


def test_a_missing_message_is_found_by_the_proof(prove: Prove) -> None:
    with pytest.raises(PlanError):
        prove("allreduce", 2, [EXCHANGE[0][:1]])
    with pytest.raises(PlanError):
        prove("bcast", 3, [[(0, 1, (0,))]])


def test_operands_are_not_combined_twice(prove: Prove) -> None:
    schedule = [[(0, 1, (0,))], [(1, 2, (0,))], [(0, 2, (0,))]]  # rank 0 once more
    with pytest.raises(AlgorithmError, match=r"brings operands .* to 111, which overlap"):
        prove("reduce", 3, schedule, root=2)


def test_several_partial_results_arrive_at_once(prove: Prove) -> None:
    prove("reduce", 4, [[(1, 0, (0,)), (2, 0, (0,)), (3, 0, (0,))]], root=0)
    prove("reduce", 4, [[(1, 0, (0,)), (2, 0, (0,)), (3, 0, (0,))]], root=2)


def test_a_message_may_hold_results_and_partial_results(prove: Prove) -> None:
    """Part 0 is a result at rank 0 after round 0, part 1 is not yet one."""
    schedule = [[(1, 0, (0,))], [(0, 1, (0, 1))], [(1, 0, (1,))]]
    for count in (0, 1, 2, 5):
        prove("allreduce", 2, schedule, n_parts=2, count=count)


def test_blocks_that_pass_other_ranks_lie_in_scratch(prove: Prove) -> None:
    way = [[(0, 1, (1, 2))], [(1, 2, (2,))]]
    for root in range(3):
        prove("scatter", 3, way, root=root)
    back = [[(2, 1, (2,))], [(1, 0, (1, 2))]]
    for root in range(3):
        prove("gather", 3, back, root=root)
    # Around a ring of three, a block for the rank before goes by the rank after.
    around = [
        [(a, (a + 1) % 3, (a * 3 + (a + 1) % 3, a * 3 + (a + 2) % 3)) for a in range(3)],
        [((a + 1) % 3, (a + 2) % 3, (a * 3 + (a + 2) % 3,)) for a in range(3)],
    ]
    plan = prove("alltoall", 3, around)
    assert plan.buffer_sizes[:, 2].max() > 0
