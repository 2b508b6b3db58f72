"""Tasks that components become: lanes, empty messages, strided blocks."""

from __future__ import annotations

from collplan.planner import compile_plan
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.plan.plan import Op
from oracle import make_spec
from structures import legal_specs

MACHINE = {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2}


def test_messages_between_nodes_take_the_destinations_lane():
    plan = compile_plan(make_spec("alltoall", "linear", 6, MACHINE, count=2))
    lane_of = plan.rank_lane
    for task in plan.tasks():
        if task.op not in (Op.SEND, Op.RECV):
            assert task.lane == -1
            continue
        source, dest = task.rank, task.peer
        if task.op is Op.RECV:
            source, dest = dest, source
        crosses = plan.rank_node[source] != plan.rank_node[dest]
        assert task.lane == (lane_of[dest] if crosses else -1)
        assert task.priority == (0 if crosses else 1)


def test_copies_onto_themselves_and_empty_messages_are_left_out():
    for spec in legal_specs(4, count=0):
        if spec.collective.kind != "barrier":
            assert compile_plan(spec).n_tasks == 0
    plan = compile_plan(make_spec("allgather", "ring", 4, count=3, in_place=True))
    assert not (plan.op == Op.COPY).any()


def test_bruck_sends_strided_slots_without_packing():
    plan = compile_plan(make_spec("alltoall", "bruck", 8, count=2, datatype="int32"))
    sends = [task for task in plan.tasks() if task.op is Op.SEND and task.rank == 0]
    assert len(sends) == ceil_log2(8)
    assert [len(task.reads) for task in sends] == [1, 1, 1]
    assert [task.reads[0].pattern[:2] for task in sends] == [(4, 4), (8, 2), (0, 1)]
