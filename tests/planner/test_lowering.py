"""Tasks that components become: lanes, empty messages, strided blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.registry import Algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.blueprint.locations import SCRATCH_STRIDE
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering import build
from collplan.planner.lowering.address import Located, squeeze_scratch
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from oracle import check_result, make_spec, with_counts
from rank_programs import assert_equal
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


@pytest.mark.quick
@pytest.mark.parametrize(
    ("count", "radix"), [(SCRATCH_STRIDE, 4), (SCRATCH_STRIDE // 2 + 1, 4), (2**40, 4)]
)
def test_scratch_of_too_many_elements_is_refused(count, radix):
    """Three operands of half of the vector arrive in scratch that is longer than any buffer."""
    machine = {"nodes": 4, "ranks_per_node": [2, 1, 1, 1], "lanes": 2}
    lane = {"lane": {"name": "recursive_multiplying", "radix": radix}}
    fields = {"decomposition": "full_lane", "datatype": "int8"}
    message = "collective.count: the plan needs a scratch vector of .* give fewer elements"
    with pytest.raises(AlgorithmError, match=message):
        compile_plan(make_spec("allreduce", lane, 0, machine, count=count, **fields))


def test_buffers_may_be_longer_than_scratch_spaces():
    spec = make_spec("allreduce", "ring", 4, count=2 * SCRATCH_STRIDE, datatype="int8")
    plan = compile_plan(spec, is_proved=False)
    assert plan.buffer_sizes[:, Buffer.RECV].tolist() == [2 * SCRATCH_STRIDE] * 4
    verify(plan)


@contextmanager
def own(kind: str, rounds: Callable[[Group], Rounds], **promises: object) -> Iterator[None]:
    """Register an algorithm of the name ``own`` for a while."""
    registry.add(Algorithm(kind, "own", rounds, **promises))
    try:
        yield
    finally:
        del registry._algorithms[kind]["own"]


def test_chunks_may_have_numbers_above_32_bits():
    """Two chunks of the root wait in slots whose numbers are the same in 32 bits."""

    def far(group: Group) -> Rounds:
        space, places = group.scratch_slots(1 << 32), (0, 1 << 32)
        yield Round(*(Copy(0, at(group.input, i), at(space, n)) for i, n in enumerate(places)))
        waiting = tuple(at(space, place) for place in places)
        yield Round(Copy(0, waiting, group.whole(group.output)))
        others = group.others
        yield Round(Message(0, others, waiting, group.whole(group.output)))

    with own("bcast", far, parts="halves"):
        plan = compile_plan(make_spec("bcast", "own", 3, count=6), is_proved=False)
        verify(plan)
        check_result(plan)
        for rank in range(3):
            assert_equal(compile_plan(plan.spec, rank=rank), restrict(plan, rank))


def test_one_ranks_program_of_pairs_does_not_grow_with_their_number():
    """The algorithm is asked for the messages of one rank only."""
    for algorithm in ("linear", "pairwise"):
        find = registry.find("reduce_scatter_block", algorithm)
        kept = np.zeros(4096, dtype=bool)
        kept[9] = True
        group = Group(4096, 0, True, np.ones((1, 4096), dtype=np.int64), kept=kept)
        messages = [
            step for one in find.rounds(group) for step in one.steps if isinstance(step, Message)
        ]
        assert sum(np.size(message.source) for message in messages) <= 2 * 4095


def _ring(group: Group, neighbor: Callable[[Group], object]) -> Rounds:
    """Yield an allgather in a ring, by an array that the algorithm changes between rounds."""
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    block, dest = group.positions, neighbor(group)
    for _ in range(size - 1):
        chunks = at(group.output, block)
        message = Message(me, dest, chunks, chunks)
        block -= 1
        block %= size
        yield Round(message)


RINGS = {
    "plain": lambda group: (group.positions + 1) % group.size,
    "zeros": lambda group: (group.positions + np.ones(group.size, dtype=int)) % group.size,
    "absolute": lambda group: (np.arange(group.size) + 1) % group.size,
    "taken": lambda group: np.roll(np.arange(group.size), -1)[group.positions],
    "list": lambda group: np.array([(rank + 1) % group.size for rank in group.positions]),
}


@pytest.mark.parametrize("neighbor", RINGS.values(), ids=RINGS)
def test_own_algorithms_use_arrays_as_numpy_does(neighbor):
    for n_ranks in (1, 2, 3, 4, 6):
        with own("allgather", lambda group: _ring(group, neighbor)):
            plan = compile_plan(make_spec("allgather", "own", n_ranks, count=3), is_proved=False)
            verify(plan)
            check_result(plan)
            for rank in range(n_ranks):
                assert_equal(compile_plan(plan.spec, rank=rank), restrict(plan, rank))


def test_errors_of_own_algorithms_are_raised():
    def wrong(group: Group) -> Rounds:
        yield Round(Message(group.positions, None + 1))

    mistake = r"^barrier/own: round 1: TypeError: unsupported operand .* \(test_lowering.py:\d+\)"
    with own("barrier", wrong), pytest.raises(AlgorithmError, match=mistake):
        compile_plan(make_spec("barrier", "own", 3), rank=1)


def test_algorithms_read_counts_only_if_they_are_registered_so():
    """The steps of others are made once for all counts."""

    def filled(group: Group) -> Rounds:
        me, size = group.positions, group.size
        yield Round(Copy(me, at(group.input, me), at(group.output, me)))
        blocks = np.flatnonzero(group.counts)
        yield Round.of(
            Message(block, other, at(group.output, block), at(group.output, block))
            for block in blocks.tolist()
            for other in range(size)
            if other != block
        )

    spec = make_spec("allgather", "own", 4, count=1)
    for promises in ({}, {"by_counts": True}):
        with own("allgather", filled, **promises):
            for counts in ((1, 0, 1, 1), (0, 1, 1, 1)):
                if not promises:
                    with pytest.raises(AlgorithmError, match="registered without by_counts=True"):
                        compile_plan(with_counts(spec, counts))
                    continue
                plan = compile_plan(with_counts(spec, counts), is_proved=False)
                verify(plan)
                check_result(plan)


def test_many_scratch_spaces_are_refused():
    def wasteful(group: Group) -> Rounds:
        spaces = [group.packed_scratch() for _ in range(4096)]
        yield Round(Copy(0, group.whole(group.input), group.whole(spaces[0])))

    with own("bcast", wasteful), pytest.raises(AlgorithmError, match="needs 4,097 scratch spaces"):
        compile_plan(make_spec("bcast", "own", 2, count=1))


def test_groups_of_a_rank_keep_their_order_in_its_program():
    """In a shift, each rank is the receiver of one group and the sender of the next one."""
    fields = {"decomposition": {"name": "guideline", "form": "shift+scan"}, "count": 9}
    plan = compile_plan(make_spec("exscan", "native", 5, **fields))
    for rank in range(5):
        assert_equal(compile_plan(plan.spec, rank=rank), restrict(plan, rank))


@pytest.mark.parametrize("is_used", [False, True])
def test_repeats_in_scratch_move_apart_only_if_there_is_unused_memory_between(is_used):
    """Rank 1 uses elements 10 to 17 of its scratch, or only every second of them."""

    def runs(offset, count, stride, repeat):
        one = np.ones(1, dtype=np.int64)
        columns = [one * value for value in (offset, count, stride, repeat)]
        return Located(one - 1, one, one * int(Buffer.SCRATCH), *columns)

    parts = [runs(10, 1, 2, 4), runs(10, 8 if is_used else 1, 0, 1)]
    sizes = squeeze_scratch(parts, 2)
    assert sizes.tolist() == [0, 8 if is_used else 4]
    strided, whole = parts
    assert strided.repeat.tolist() == ([4] if is_used else [1] * 4)
    assert strided.offset.tolist() == ([0] if is_used else [0, 1, 2, 3])
    assert whole.offset.tolist() == [0]


def test_a_landing_slot_is_reused_right_after_its_message_is_combined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A root with two slots receives six messages of a round, each between two reductions."""
    found = []

    def plan_landings(*arguments: Any) -> build.Landing:
        found.append(planned(*arguments))
        return found[-1]

    planned = build.plan_landings
    monkeypatch.setattr(build, "plan_landings", plan_landings)
    compile_plan(make_spec("reduce", "linear", 7, count=4, datatype="int64"))
    (landing,) = found
    received = landing.recv_order[landing.landed]
    combined = landing.arrival_order
    assert len(received) == len(combined) == 6
    assert (np.diff(combined) > 0).all()
    for turn, order in enumerate(received.tolist()):
        if turn < build.N_LANDINGS:
            assert order < combined[0]
        else:
            reused = turn - build.N_LANDINGS
            assert combined[reused] < order < combined[reused + 1]
    assert landing.last_order > combined[-1]
