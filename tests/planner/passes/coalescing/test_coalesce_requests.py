"""Messages that travel together become one: proved, right, restricted; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.arrays.csr import joint_key
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.coalescing.coalesce_requests import STAGINGS, coalesce_requests
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from handmade import PlanBook
from oracle import make_spec
from staged_alltoalls import V2, alltoall, check

UNEVEN = {"nodes": 3, "ranks_per_node": [3, 1, 1], "lanes": 2}
LANES = {"bcast": "chain", "allreduce": "ring"}


def n_extents(plan, op):
    side = plan.reads if op == Op.SEND else plan.writes
    return np.diff(side.indptr)[plan.op == op]


def travel_together(plan):
    """Return how many messages there are beside the first of a pair, phase and round."""
    sends, _ = match_messages(plan)
    keys = joint_key(plan.rank[sends], plan.peer[sends], plan.n_ranks)
    keys = joint_key(keys, plan.phase[sends], 100)
    return len(sends) - len(np.unique(joint_key(keys, plan.round[sends], 1000)))


@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("kind", ["bcast", "allreduce"])
def test_any_collective_whose_lanes_wrap_around(kind, transport, staging):
    """Ranks 3 and 4 lead all lanes of their nodes: their messages travel together."""
    spec = make_spec(
        kind,
        {"lane": LANES[kind]},
        0,
        UNEVEN,
        count=9,
        decomposition="full_lane",
        datatype="uint64",
    ).replace(transport=transport)
    plain = compile_plan(spec)
    plan = check(spec.replace(passes=[{"name": "coalesce_requests", "staging": staging}]))
    assert travel_together(plan) == 0
    sends = (plan.op == Op.SEND).sum()
    assert sends == (plain.op == Op.SEND).sum() - travel_together(plain)


def test_some_of_them_do_travel_together():
    spec = make_spec("allreduce", {"lane": "ring"}, 0, UNEVEN, count=9, decomposition="full_lane")
    assert travel_together(compile_plan(spec)) > 0


def test_remapped_messages_are_one_interval_and_copies_move_whole_rows():
    """Blocks for one node stay side by side: no copy moves single blocks that moved more."""
    before = compile_plan(alltoall("4x3"))
    plan = coalesce_requests(before)
    assert plan.n_tasks == before.n_tasks - 2 * 4 * 3 * 2
    for op in (Op.SEND, Op.RECV):
        assert (n_extents(plan, op) == 1).all()
    stages = [task for task in plan.tasks() if task.phase == 0]
    assert all(extent.count % 9 == 0 for task in stages for extent in task.writes)
    assert (plan.shared_sizes == before.shared_sizes).all()


def test_layout_moves_nothing():
    before = compile_plan(alltoall("4x3"))
    plan = coalesce_requests(before, "layout")
    sent = [task for task in plan.tasks() if task.op == Op.SEND]
    # Three rows of a shared send buffer, one of each rank.
    assert all(task.reads[0].pattern[1] == 3 for task in sent)
    copies = [[t for t in p.tasks() if t.op == Op.COPY] for p in (before, plan)]
    assert [t.writes for t in copies[0]] == [t.writes for t in copies[1]]


def test_packing_copies_at_the_ends_that_are_scattered():
    before = compile_plan(alltoall("4x3"))
    plan = coalesce_requests(before, "pack")
    packs = [t for t in plan.tasks() if t.op == Op.COPY and t.phase == 1]
    assert len(packs) == 4 * 3
    assert all(t.writes[0].buffer == Buffer.SCRATCH for t in packs)
    # What is received is one block of shared memory: nothing is unpacked.
    assert (n_extents(plan, Op.RECV) == 1).all()
    assert plan.buffer_sizes[0, Buffer.SCRATCH] == 3 * 3 * 9
    verify(plan)


def two_blocks_to(book, peers, buffer=Buffer.SCRATCH):
    """Rank 0 sends the blocks 0:2 and 4:6, each by itself, to each of `peers`."""
    for peer in peers:
        for tag, offset in enumerate((0, 4)):
            columns = {"tag": tag, "round": 1}
            book.add(Op.SEND, 0, [(buffer, offset, 2)], [], peer=peer, **columns)
            book.add(Op.RECV, peer, [], [(Buffer.RECV, offset, 2)], peer=0, **columns)
    return book.plan()


def test_blocks_of_one_message_move_together_and_what_lies_between_behind_them():
    plan = coalesce_requests(two_blocks_to(PlanBook([0, 1]), [1]))
    verify(plan)
    assert [str(extent) for extent in plan.task(0).reads] == ["scratch[0:4]"]
    # A caller's buffer stays as it is.
    assert [str(extent) for extent in plan.task(1).writes] == ["recv[0:2]x2@4"]


def test_blocks_of_two_messages_stay_where_they_are():
    """No permutation makes both messages one interval."""
    plan = coalesce_requests(two_blocks_to(PlanBook([0, 1, 2]), [1, 2]))
    verify(plan)
    sends = [task for task in plan.tasks() if task.op == Op.SEND]
    assert [str(task.reads[0]) for task in sends] == ["scratch[0:2]x2@4"] * 2


def test_a_message_that_waits_for_one_of_its_own_is_refused():
    book = PlanBook([0, 1])
    one, other = (Buffer.RECV, 0, 2), (Buffer.SCRATCH, 0, 2)
    first = book.add(Op.RECV, 1, [], [other], peer=0, tag=0)
    used = book.add(Op.COPY, 1, [other], [one], [first])
    book.add(Op.RECV, 1, [], [other], [used], peer=0, tag=1)
    for tag in range(2):
        book.add(Op.SEND, 0, [(Buffer.SEND, 2 * tag, 2)], [], peer=1, tag=tag)
    with pytest.raises(AlgorithmError, match=r"coalesce_requests: #1 .* would wait for"):
        coalesce_requests(book.plan())


def test_what_travels_alone_is_the_same_plan():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    assert coalesce_requests(plan) is plan


def test_unknown_stagings_are_refused():
    with pytest.raises(AlgorithmError, match="'glue' is none; use remap, pack, layout"):
        compile_plan(alltoall("2x2", [{"name": V2[0], "staging": "glue"}]))


def rounds_apart(n=3):
    """Rank 0 sends blocks of one buffer, one a round; nothing says that one waits for another."""
    book = PlanBook([0, 1])
    for turn in range(n):
        columns = {"tag": turn, "round": turn}
        book.add(Op.SEND, 0, [(Buffer.SEND, 2 * turn, 2)], [], peer=1, **columns)
        book.add(Op.RECV, 1, [], [(Buffer.RECV, 2 * turn, 2)], peer=0, **columns)
    return book


def test_messages_of_several_rounds_may_be_ready_together():
    plan = rounds_apart().plan()
    assert coalesce_requests(plan) is plan
    merged = coalesce_requests(plan, when="ready")
    verify(merged)
    assert [str(task) for task in merged.tasks()] == [
        "#0 rank 0: send to 1 tag 0 send[0:6]",
        "#1 rank 1: recv from 0 tag 0 -> recv[0:6]",
    ]


def test_messages_that_follow_from_others_are_not_ready_together():
    """The third message is of what came back for the first."""
    book = rounds_apart(2)
    back = book.add(Op.SEND, 1, [(Buffer.RECV, 0, 2)], [], [1], peer=0, tag=0)
    book.add(Op.RECV, 0, [], [(Buffer.RECV, 0, 2)], peer=1, tag=0)
    book.add(Op.SEND, 0, [(Buffer.RECV, 0, 2)], [], [back + 1], peer=1, tag=2)
    book.add(Op.RECV, 1, [], [(Buffer.RECV, 8, 2)], peer=0, tag=2)
    merged = coalesce_requests(book.plan(), when="ready")
    verify(merged)
    sends = [task for task in merged.tasks() if task.op == Op.SEND]
    assert [(task.rank, task.reads[0].count) for task in sends] == [(0, 4), (1, 2), (0, 2)]


@pytest.mark.parametrize("staging", STAGINGS)
def test_what_is_ready_together_in_segments_of_any_collective(staging):
    """Cut messages are joined again where a segment waits for no other."""
    ready = {"name": "coalesce_requests", "staging": staging, "when": "ready"}
    for kind in ("bcast", "alltoall", "allreduce"):
        spec = make_spec(
            kind, "auto", 0, UNEVEN, count=18, decomposition="full_lane", datatype="uint64",
            passes=[{"name": "segment", "max_bytes": 16}, ready],
        )  # fmt: skip
        plan = check(spec)
        cut = compile_plan(spec.replace(passes=spec.passes[:1]))
        assert (plan.op == Op.SEND).sum() < (cut.op == Op.SEND).sum()


def test_who_is_ready_needs_all_ranks():
    plan = restrict(compile_plan(make_spec("alltoall", "pairwise", 4, count=3)), 0)
    with pytest.raises(AlgorithmError, match=r"coalesce_requests: it needs the plan of all ranks"):
        coalesce_requests(plan, when="ready")
    with pytest.raises(AlgorithmError, match="'now' is neither; use round or ready"):
        coalesce_requests(plan, when="now")
