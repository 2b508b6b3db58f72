"""Alltoall through shared memory: every design proved, run in random orders, and restricted."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.blueprint.exchange import exchange_of
from collplan.planner.errors import AlgorithmError
from collplan.planner.formats.text import to_text
from collplan.planner.passes import pass_registry
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.specs import Machine
from looping import looped
from rank_programs import assert_equal
from staged_alltoalls import DECOMPOSITIONS, MACHINES, V1, V2, V3, alltoall, check


@pytest.mark.many
@pytest.mark.parametrize("passes", [V1, V2, V3], ids=["V1", "V2", "V3"])
@pytest.mark.parametrize("machine", MACHINES)
def test_one_leader_a_node(machine, passes):
    for count, in_place in ((3, False), (1, True)):
        check(alltoall(machine, passes, count=count, in_place=in_place), n_orders=2)


@pytest.mark.many
@pytest.mark.parametrize("decomposition", list(DECOMPOSITIONS)[1:])
@pytest.mark.parametrize("machine", ["3,1,2", "cyclic"])
def test_several_leaders(machine, decomposition):
    for passes, in_place in ((V1, True), (V2, False), (V3, False)):
        check(alltoall(machine, passes, DECOMPOSITIONS[decomposition], in_place=in_place))


@pytest.mark.quick
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_nothing_to_move_takes_no_tasks(decomposition):
    machine = "2x2"
    plan = check(alltoall(machine, V3, DECOMPOSITIONS[decomposition], count=0))
    assert plan.n_tasks == 0
    assert not plan.shared_sizes.any()


def test_a_rank_alone_on_its_node_neither_stages_nor_copies_out():
    plan = compile_plan(alltoall("3,1,2"))
    own = plan.rank == 3
    assert (plan.op[own] == Op.COPY).sum() == 1
    assert plan.shared_sizes[1] == 0


def test_program_order_is_pairwise():
    """XOR on powers of two nodes, right and left neighbors else."""
    for nodes, peers in ((4, [3, 0, 1]), (5, [3, 4, 0, 1])):
        plan = compile_plan(alltoall({"nodes": nodes, "ranks_per_node": 2}, V2))
        sends = (plan.op == Op.SEND) & (plan.rank == 4)
        assert plan.rank_node[plan.peer[sends]].tolist() == peers


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"transport": "messages"}, "write transport: shared"),
        ({"transport": {"lane": "shared"}}, "write transport: shared"),
        ({"algorithms": {"lane": "bruck"}}, "algorithms says lane: bruck; leave them out"),
        ({"decomposition": {"by": "numa"}}, "leave out node, lane and by"),
        ({"decomposition": {"node": "full_lane"}}, "leave out node, lane and by"),
        ({"decomposition": {"form": "stages"}}, "use collect, staged or node_aware or matrix"),
    ],
)
def test_what_cannot_be_staged_is_refused(change, reason):
    shape = {"name": "hierarchical", "form": "staged"} | change.get("decomposition", {})
    with pytest.raises(AlgorithmError, match=reason):
        compile_plan(alltoall("2x2", **change | {"decomposition": shape}))


def test_what_names_components_gets_them():
    for change in (
        {"algorithms": {"lane": "pairwise"}},
        {"decomposition": {"name": "hierarchical", "form": "collect"}},
        {"decomposition": "full_lane"},
    ):
        plan = compile_plan(alltoall("2x2", **change))
        assert any(phase.name.startswith("lane alltoall/") for phase in plan.phases)
        assert "node stage/copy" not in map(str, plan.phases)


def test_split_lanes_leads_to_several_leaders():
    split = {"name": "split_lanes", "leaders": 2}
    plan = compile_plan(alltoall("4x3", [split, *V2]))
    other = compile_plan(alltoall("4x3", V2, DECOMPOSITIONS["two leaders"]))
    assert to_text(plan) == to_text(other)
    assert Machine.model_validate(MACHINES["4x3"]).n_ranks == plan.n_ranks


SEGMENT = {"name": "segment", "max_bytes": 24}
WINDOW = {"name": "limit_requests", "remote": 1, "node": 1}


@pytest.mark.parametrize(
    "passes",
    [
        (SEGMENT, *V3),
        (*V3, SEGMENT, "prioritize", WINDOW),
        ("prioritize", *V3),
        ({"name": "coalesce_requests", "when": "ready"}, "double_buffer"),
    ],
)
def test_with_other_passes(passes):
    check(alltoall("3,1,2", passes, count=7))


def test_blocks_are_copied_while_the_next_are_on_their_way():
    spec = alltoall({"nodes": 5, "ranks_per_node": 2}, V3, count=4096)
    plan = compile_plan(spec)
    times = simulate(plan, spec.machine.network)
    own = plan.rank == 0
    received = np.flatnonzero(own & (plan.op == Op.RECV))
    copied = np.flatnonzero(own & (plan.phase == 2))[1:]
    assert len(received) == len(copied) == 4
    for copy, coming in zip(copied, received[1:], strict=False):
        assert times.start_ns[copy] < times.end_ns[coming]


@pytest.mark.many
@looped("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("machine", ["2x2", "3,1,2", "4x3", "any order", "cyclic"])
def test_coalesced_messages_are_made_as_the_pass_makes_them(machine, decomposition, monkeypatch):
    layout = ({"name": "coalesce_requests", "staging": "layout"},)
    for passes, count, in_place in ((V2, 3, False), (V3, 1, True), (layout, 2, False)):
        spec = alltoall(
            machine, passes, DECOMPOSITIONS[decomposition], count=count, in_place=in_place
        )
        at_once = compile_plan(spec)
        with monkeypatch.context() as patched:
            late = replace(pass_registry["coalesce_requests"], early=None)
            patched.setitem(pass_registry, "coalesce_requests", late)
            by_pass = compile_plan(spec)
        for rank in range(count % 2, at_once.n_ranks, 2):
            assert_equal(restrict(at_once, rank), restrict(by_pass, rank))


@pytest.mark.quick
@pytest.mark.parametrize("n_nodes", [1, 2, 5, 8])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_blocks_of_some_nodes_are_those_that_they_send_or_receive(n_nodes, decomposition):
    machine = {"nodes": n_nodes, "ranks_per_node": 3}
    spec = alltoall(machine, decomposition=DECOMPOSITIONS[decomposition])
    exchange = exchange_of(spec, spec.decomposition)
    every = exchange.blocks_of(np.arange(n_nodes))
    for rows in ([0], [n_nodes - 1], [0, n_nodes // 2]):
        touched = np.isin(every.source, rows) | np.isin(every.dest, rows)
        some = exchange.blocks_of(np.unique(rows), sent=True)
        for column, kept in zip(every, some, strict=True):
            assert column[touched].tolist() == kept.tolist()


def test_one_ranks_program_does_not_grow_with_the_pairs_of_nodes():
    spec = alltoall({"nodes": 4096, "ranks_per_node": 2}, V2)
    tracemalloc.start()
    try:
        program = compile_plan(spec, rank=1)
        assert tracemalloc.get_traced_memory()[1] < 64e6  # 4,096² numbers take 134 MB
    finally:
        tracemalloc.stop()
    assert program.n_tasks > 4096
