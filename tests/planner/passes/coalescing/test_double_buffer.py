"""Receive blocks in turn: proved, run in random orders, no larger than said; and what stays."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collplan.executors.local import run_local
from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.errors import AlgorithmError, RaceError
from collplan.planner.formats.text import to_text
from collplan.planner.passes import registry as registry_of_passes
from collplan.planner.passes.coalescing.coalesce_requests import coalesce_requests
from collplan.planner.passes.coalescing.double_buffer import double_buffer, find_blocks
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import SpecError, parse_spec
from handmade import PlanBook
from oracle import check_result, make_spec
from staged_alltoalls import V2, V3, alltoall, check
from tiers import examples

N_ORDERS = 1_000
"""Random orders of one plan; benchmarks/alltoall.py tries larger ones."""


def without_edges(plan: Plan, rows: list[int]) -> Plan:
    """Return a plan whose receives `rows` wait for nothing."""
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    kept = ~np.isin(after, rows)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(after[kept], minlength=plan.n_tasks))))
    return plan.replace(deps=Dependencies(indptr, plan.deps.task[kept], plan.deps.kind[kept]))


def test_blocks_in_turn_stay_right_in_random_orders():
    plan = compile_plan(alltoall({"nodes": 5, "ranks_per_node": 2}, V3, count=2), is_proved=False)
    verify(plan)
    inputs = make_inputs(plan.spec.collective, plan.n_ranks, 3)
    truth = np.concatenate(expected(plan.spec.collective, inputs))
    for seed in range(examples(N_ORDERS)):
        recvbufs = [np.zeros_like(one) for one in inputs]
        run_local(plan, inputs, recvbufs, order=random.Random(seed))
        assert np.array_equal(np.concatenate(recvbufs), truth), seed


def test_without_their_edges_blocks_race_and_orders_go_wrong():
    plan = compile_plan(alltoall({"nodes": 5, "ranks_per_node": 2}, V3, count=2))
    waiting = [
        row
        for row in np.flatnonzero(plan.op == Op.RECV)
        if plan.deps.indptr[row + 1] > plan.deps.indptr[row]
    ]
    assert len(waiting) == 5 * 2
    broken = without_edges(plan, waiting)
    with pytest.raises(RaceError, match="touch the same memory"):
        verify(broken)
    assert any(goes_wrong(broken, seed) for seed in range(N_ORDERS))


def goes_wrong(plan, seed):
    try:
        check_result(plan, order=random.Random(seed), seed=seed)
    except AssertionError:
        return True
    return False


def test_blocks_of_ranks_and_of_their_node_are_told_apart():
    """Ranks receive into their scratch memory and into that of the node in the same round."""
    book = PlanBook([0, 0, 0, 0])
    for rank in range(4):
        for number, buffer in enumerate((Buffer.SCRATCH, Buffer.SHARED)):
            place = [(buffer, rank, 1)]
            book.add(Op.SEND, (rank + 1) % 4, [(Buffer.SEND, 0, 1)], [], peer=rank, tag=number)
            book.add(Op.RECV, rank, [], place, peer=(rank + 1) % 4, tag=number)
    plan = book.plan().replace(shared_sizes=np.array([4]))
    space = AddressSpace.of_plan(plan)
    blocks = find_blocks(plan, space, *pieces_of(plan))
    assert sorted(blocks.block) == list(range(8))
    homes = [space.number(np.array([rank]), np.array([Buffer.SCRATCH]))[0] for rank in range(4)]
    assert sorted(blocks.home) == [*homes, *[len(space.start) - 2] * 4]
    assert len(set(blocks.chain)) == 8


@pytest.mark.parametrize("slots", [2, 3])
def test_a_receive_waits_for_all_who_read_its_slot(slots):
    """Four blocks after each other: the third takes the place of the first."""
    before = compile_plan(alltoall({"nodes": 5, "ranks_per_node": 2}, V2))
    plan = double_buffer(before, slots)
    verify(plan)
    own = np.flatnonzero((plan.op == Op.RECV) & (plan.rank == 0))
    places = [plan.task(row).writes[0].offset for row in own]
    assert len(set(places)) == slots
    assert places[slots:] == places[: 4 - slots]
    for row, other in zip(own[slots:], own, strict=False):
        readers = [task.row for task in plan.tasks() if other in task.after]
        assert len(readers) == 2
        assert set(plan.task(row).after) == set(readers)
    block = 2 * 2 * 3
    assert (before.shared_sizes - plan.shared_sizes == (4 - slots) * block).all()


def test_as_many_slots_as_blocks_change_nothing():
    plan = compile_plan(alltoall({"nodes": 5, "ranks_per_node": 2}, V2))
    assert double_buffer(plan, 4) is plan
    assert double_buffer(plan, 9) is plan


def test_messages_not_yet_coalesced_share_slots_too():
    plan = check(alltoall({"nodes": 4, "ranks_per_node": [3, 1, 2, 2]}, ("double_buffer",)))
    staged = compile_plan(alltoall({"nodes": 4, "ranks_per_node": [3, 1, 2, 2]}))
    assert (plan.shared_sizes <= staged.shared_sizes).all()
    assert plan.shared_sizes.sum() < staged.shared_sizes.sum()


def test_packed_messages_land_in_slots_of_scratch():
    """General: blocks of scratch that copies unpack are reused as shared ones are."""
    book = PlanBook([0, 1])
    for turn in range(4):
        for tag, offset in enumerate((2 * turn, 8 + 2 * turn)):
            columns = {"tag": 2 * turn + tag, "round": turn}
            book.add(Op.SEND, 0, [(Buffer.SEND, offset, 2)], [], peer=1, **columns)
            book.add(Op.RECV, 1, [], [(Buffer.RECV, offset, 2)], peer=0, **columns)
    packed = coalesce_requests(book.plan(), "pack")
    plan = double_buffer(packed)
    verify(plan)
    used = [task.writes[0].offset for task in plan.tasks() if task.op == Op.RECV]
    assert used == [16, 20, 16, 20]
    scratch = [p.buffer_sizes[:, Buffer.SCRATCH].tolist() for p in (packed, plan)]
    assert scratch == [[16 + 4 * 4, 16 + 4 * 4], [16 + 4 * 4, 16 + 2 * 4]]


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "gather", "scan"])
def test_blocks_that_are_read_later_stay(kind):
    plan = compile_plan(make_spec(kind, "auto", 6, count=12))
    again = double_buffer(plan)
    verify(again)
    check_result(again)


GUIDELINE_GATHER = {
    "machine": {"nodes": 2, "ranks_per_node": 4},
    "collective": {"kind": "gather", "count": 4},
    "decomposition": "guideline",
}


def exchanging_specs():
    """Return plans in which ranks pass on what they received, flat and in parts."""
    machine = {"nodes": 2, "ranks_per_node": [4, 3]}
    for kind in registry.kinds():
        forms = [("flat", algorithm.name) for algorithm in registry.of(kind)]
        forms += [(name, "auto") for name in ("hierarchical", "full_lane", "guideline")]
        for decomposition, algorithm in forms:
            for transport in ("messages", "shared"):
                collective = {"kind": kind} | ({} if kind == "barrier" else {"count": 10})
                document = {
                    "machine": machine,
                    "collective": collective,
                    "decomposition": decomposition,
                    "algorithms": algorithm,
                    "transport": transport,
                }
                if decomposition == "flat" and algorithm in ("recursive_doubling", "bruck"):
                    document["machine"] = {"nodes": 2, "ranks_per_node": 8}
                yield document


def compiled(document, *passes, rank=None):
    return compile_plan(parse_spec({**document, "passes": list(passes)}), rank=rank)


@pytest.mark.long
def test_no_plan_deadlocks_with_slots(monkeypatch):
    """Ranks that send what they received, while they receive, must not wait for each other.

    What `compile_plan` returns is legal without its proof, as beyond its limit.
    """
    monkeypatch.setattr(registry_of_passes, "VERIFY_LIMIT", -1)
    n_folded = 0
    for document in exchanging_specs():
        segment = {"name": "segment", "max_bytes": 24}
        try:
            before = compiled(document, segment)
        except (AlgorithmError, SpecError):
            continue
        plan = double_buffer(before)
        verify(plan)
        if plan is before:
            continue
        n_folded += 1
        for rank in (0, before.n_ranks - 1):
            own = compiled(document, segment, "double_buffer", rank=rank)
            assert to_text(own) == to_text(restrict(plan, rank))
    assert n_folded >= 3


def test_the_guideline_gather_compiles_in_segments(monkeypatch):
    """Beyond the limit up to which plans are proved, this one came out as a deadlock."""
    monkeypatch.setattr(registry_of_passes, "VERIFY_LIMIT", 0)
    segment = {"name": "segment", "max_bytes": 24}
    document = GUIDELINE_GATHER | {"collective": {"kind": "gather", "count": 100}}
    for passes in ([], [segment]):
        plan = compiled(document, *passes, "double_buffer")
        verify(plan)
        check_result(plan)


def test_segments_wait_for_those_whose_memory_they_take():
    """Not for all segments of the block: dependencies grow with the tasks, not their square."""
    document = {
        "machine": {"nodes": 5, "ranks_per_node": 2},
        "collective": {"kind": "alltoall", "count": 60, "datatype": "int32"},
        "decomposition": "hierarchical",
        "transport": "shared",
    }
    for max_bytes in (80, 8):
        segment = {"name": "segment", "max_bytes": max_bytes}
        plan = compiled(document, "coalesce_requests", segment, "double_buffer")
        verify(plan)
        assert plan is not None
        assert len(plan.deps.task) < 6 * plan.n_tasks


@pytest.mark.quick
@pytest.mark.parametrize("slots", [1, 0, True, "two", 2.0])
def test_fewer_than_two_slots_are_refused(slots):
    plan = compile_plan(alltoall("2x2"))
    with pytest.raises(AlgorithmError, match=r"passes\.double_buffer\.slots: .* at least 2"):
        double_buffer(plan, slots)


@pytest.mark.parametrize("rewrite", [coalesce_requests, double_buffer])
def test_a_program_that_waits_for_others_is_refused(rewrite):
    plan = restrict(compile_plan(alltoall("4x3")), 0)
    with pytest.raises(AlgorithmError, match="rank 0's program shares memory with others"):
        rewrite(plan)


def test_a_program_in_which_nothing_moves_is_compiled():
    spec = make_spec("allgather", "auto", 4, count=0, passes=["double_buffer"])
    assert [compile_plan(spec, rank=rank).n_tasks for rank in range(4)] == [0] * 4
