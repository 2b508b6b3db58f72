"""Neighborhood collectives, directly and through leaders, on random graphs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from collplan.planner import compile_plan
from collplan.planner.collective.reference import make_inputs
from collplan.planner.errors import PostconditionError
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from neighborhoods import exchanged, specs
from oracle import check_result, filled_buffers, run_local
from tiers import examples

UNTOUCHED = 77


@settings(max_examples=examples(120), deadline=None)
@given(specs())
def test_plans_on_random_graphs_are_proved_and_right(spec: PlanSpec) -> None:
    plan = compile_plan(spec, is_proved=False)
    verify(plan)
    check_result(plan, spec, random.Random(3))


@settings(max_examples=examples(60), deadline=None)
@given(specs())
def test_results_are_those_that_mpi_describes(spec: PlanSpec) -> None:
    plan = compile_plan(spec, is_proved=False)
    sendbufs, recvbufs = filled_buffers(plan, spec)
    run_local(plan, sendbufs, recvbufs)
    wanted = exchanged(spec.collective, make_inputs(spec.collective, plan.n_ranks), UNTOUCHED)
    for got, right in zip(recvbufs, wanted, strict=True):
        assert np.array_equal(got[: len(right)], right)


@settings(max_examples=examples(20), deadline=None)
@given(specs())
def test_the_program_of_each_rank_is_that_of_the_plan(spec: PlanSpec) -> None:
    plan = compile_plan(spec, is_proved=False)
    for rank in range(plan.n_ranks):
        own = compile_plan(spec, rank=rank)
        assert own.op.tolist() == plan.op[plan.rank == rank].tolist()
        assert own.elements.tolist() == plan.elements[plan.rank == rank].tolist()


def plan_of(graph: Any, decomposition: Any, **fields: Any) -> Plan:
    machine = {"nodes": 3, "ranks_per_node": 4, "lanes": 2}
    return compile_plan(PlanSpec.model_validate({
        "machine": machine, "decomposition": decomposition,
        "collective": {"graph": graph, "datatype": "int64", **fields},
    }))  # fmt: skip


def sent_between_nodes(plan: Plan) -> list[tuple[int, int, int]]:
    """Return source, destination and elements of the messages between nodes."""
    sends = np.flatnonzero(plan.op == Op.SEND)
    ends = plan.rank[sends], plan.peer[sends], plan.elements[sends]
    rows = zip(*(end.tolist() for end in ends), strict=True)
    return [row for row in rows if row[0] // 4 != row[1] // 4]


EVERYONE = [[i, j] for i in range(12) for j in range(12)]
"""Edges between all ranks, also to themselves."""


@pytest.mark.parametrize("decomposition", ["hierarchical", "full_lane"])
def test_a_pair_of_nodes_has_one_message(decomposition: str) -> None:
    messages = sent_between_nodes(
        plan_of(EVERYONE, decomposition, kind="neighbor_alltoall", count=5)
    )
    assert len({(one // 4, other // 4) for one, other, _ in messages}) == len(messages) == 6
    assert {n for _, _, n in messages} == {4 * 4 * 5}


def test_leaders_share_the_messages_of_a_node() -> None:
    for decomposition, n_leaders in (("hierarchical", 1), ("full_lane", 2)):
        plan = plan_of(EVERYONE, decomposition, kind="neighbor_alltoall", count=5)
        senders = [one for one, _, _ in sent_between_nodes(plan)]
        assert len(set(senders)) == 3 * n_leaders


def test_a_block_is_sent_once_to_a_node() -> None:
    flat, through = (
        sent_between_nodes(plan_of(EVERYONE, name, kind="neighbor_allgather", count=5))
        for name in ("flat", "hierarchical")
    )
    assert sum(n for *_, n in flat) == 12 * 8 * 5
    assert sum(n for *_, n in through) == 12 * 2 * 5


def test_balanced_shares_use_all_leaders_of_each_pair_of_nodes() -> None:
    chosen = {"name": "full_lane", "shares": "balanced"}
    messages = sent_between_nodes(plan_of(EVERYONE, chosen, kind="neighbor_alltoall", count=5))
    assert len(messages) == 6 * 4
    assert {n for *_, n in messages} == {20}


def test_edges_without_elements_send_nothing() -> None:
    graph = [[0, 5, 0], [5, 0, 3], [1, 1, 0], [2, 9, 0]]
    for name in ("flat", "hierarchical", "full_lane"):
        plan = plan_of(graph, name, kind="neighbor_alltoallv")
        assert [row[2] for row in sent_between_nodes(plan)] == [3]
    for empty in ([], [[0, 1, 0]]):
        assert len(plan_of(empty, "full_lane", kind="neighbor_alltoallv").op) == 0


def test_the_proof_refuses_another_graph() -> None:
    plan = plan_of([[0, 5, 3], [0, 6, 3]], "hierarchical", kind="neighbor_alltoallv")
    assert plan.spec is not None
    other = {"kind": "neighbor_alltoallv", "graph": [[0, 6, 3], [0, 5, 3]], "datatype": "int64"}
    fields = plan.spec.model_dump(mode="json") | {"collective": other}
    with pytest.raises(PostconditionError):
        verify(plan.replace(spec=PlanSpec.model_validate(fields)))


def test_messages_between_neighbors_are_as_many_as_edges() -> None:
    graph = {"grid": [3, 4], "periodic": [True, False]}
    plan = plan_of(graph, "flat", kind="neighbor_alltoall", count=2)
    # A dimension of four has three connections, each in both directions.
    assert np.count_nonzero(plan.op == Op.SEND) == 12 * 2 + 3 * 3 * 2
