"""A minimal plan, written by hand, for everything that can be wrong with one."""

from __future__ import annotations

import random
import re
import sys

import numpy as np
import pytest

from brute_force import find_faults
from collplan.planner import Plan, compile_plan
from collplan.planner.arrays.motion import Motion
from collplan.planner.errors import (
    DeadlockError,
    DuplicateContributionError,
    MatchOrderError,
    MissingContributionError,
    OperandOrderError,
    OverwrittenInputError,
    PlanError,
    PlanFormatError,
    PostconditionError,
    RaceError,
    SizeMismatchError,
    UndefinedReadError,
    UnmatchedRecvError,
    UnmatchedSendError,
)
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.plan import NO_PATTERN, Buffer, Op
from collplan.planner.plan.ragged import ON_START, Dependencies
from collplan.planner.rewrite.fold import fold
from collplan.planner.verify import verify
from collplan.planner.verify.barrier import _moved, check_barrier
from collplan.planner.verify.moves import Moves, _first_overlap
from collplan.planner.verify.order import Execution
from handmade import Interval, PlanBook
from oracle import AFFINE, make_spec

SEND, RECV, SCRATCH, SHARED = Buffer
N = 2
"""Elements of a vector."""


def send(part: int = 0) -> list[Interval]:
    return [(SEND, part * N, N)]


def recv(part: int = 0) -> list[Interval]:
    return [(RECV, part * N, N)]


def scratch(part: int = 0) -> list[Interval]:
    return [(SCRATCH, part * N, N)]


def two_ranks() -> PlanBook:
    """Return an empty plan of two ranks on one node with buffers of 8 elements."""
    return PlanBook([0, 0], elements=8)


def computing(plan: Plan, kind: str, **fields: object) -> Plan:
    """Return `plan`, claimed to compute a collective on vectors of `N` elements."""
    spec = make_spec(kind, "auto", plan.n_ranks, **({"count": N, "datatype": "uint64"} | fields))
    return plan.replace(spec=spec, itemsize=spec.collective.itemsize)


def refuse(plan: Plan, error: type[PlanError], *words: str) -> None:
    """Fail unless verify raises exactly `error`, with `words`, and brute force agrees."""
    with pytest.raises(error) as caught:
        verify(plan)
    text = str(caught.value)
    assert type(caught.value) is error
    assert "\n" not in text
    for word in words:
        assert word in text, text
    assert find_faults(plan)


def accept(plan: Plan) -> None:
    verify(plan)
    assert find_faults(plan) == {}


# Messages


def test_a_send_that_nobody_receives():
    book = two_ranks()
    book.add(Op.SEND, 0, send(), [], peer=1, tag=0)
    book.add(Op.SEND, 0, send(), [], peer=1, tag=3)
    book.add(Op.RECV, 1, [], recv(), peer=0, tag=0)
    refuse(book.plan(), UnmatchedSendError, "#1 rank 0: send to 1 tag 3", "rank 1 has no receive")


def test_a_receive_that_nobody_sends_to():
    book = two_ranks()
    book.add(Op.RECV, 1, [], recv(), peer=0)
    refuse(book.plan(), UnmatchedRecvError, "#0 rank 1: recv from 0 tag 0", "rank 0 has no send")


def test_a_message_whose_ends_differ_in_size():
    book = two_ranks()
    book.add(Op.SEND, 0, send(), [], peer=1)
    book.add(Op.RECV, 1, [], recv(0) + recv(1), peer=0)
    refuse(book.plan(), SizeMismatchError, "#0", "sends 2 elements", "#1", "expects 4")


def sharing_a_tag(
    send_edge: list[int | tuple[int, int]], recv_edge: list[int | tuple[int, int]]
) -> Plan:
    book = two_ranks()
    book.add(Op.SEND, 0, send(0), [], peer=1)
    book.add(Op.SEND, 0, send(1), [], send_edge, peer=1)
    book.add(Op.RECV, 1, [], recv(0), peer=0)
    book.add(Op.RECV, 1, [], recv(1), recv_edge, peer=0)
    return book.plan()


def test_messages_of_one_tag_start_in_order_at_both_ends():
    accept(sharing_a_tag([(0, ON_START)], [(2, ON_START)]))
    accept(sharing_a_tag([0], [2]))
    words = ("starts of", "share a tag")
    refuse(sharing_a_tag([], [(2, ON_START)]), MatchOrderError, "#0 rank 0", "#1 rank 0", *words)
    refuse(sharing_a_tag([(0, ON_START)], []), MatchOrderError, "#2 rank 1", "#3 rank 1", *words)


def test_a_message_to_oneself():
    book = PlanBook([0], elements=8)
    book.add(Op.SEND, 0, send(), [], peer=0)
    book.add(Op.RECV, 0, [], recv(), peer=0)
    accept(computing(book.plan(), "allgather"))


# Deadlock


def test_a_cycle_of_dependencies_is_shown():
    book = two_ranks()
    book.add(Op.COPY, 0, send(), recv(), [1])
    book.add(Op.COPY, 0, send(), scratch(), [0])
    book.add(Op.COPY, 0, send(), scratch(1), [1])
    refuse(
        book.plan(), DeadlockError, "2 tasks wait for each other: ", "#0 rank 0: copy",
        "waits for #1 rank 0: copy",
    )  # fmt: skip


def test_a_cycle_is_found_without_a_graph_of_all_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a graph did not fit into memory beside large plans, and the cycle was lost."""
    monkeypatch.setitem(sys.modules, "networkx", None)
    book, n = two_ranks(), 150
    for row in range(n):
        earlier = list(range(row)) if row > 30 else [row - 1]
        book.add(Op.COPY, 0, send(), scratch(), earlier if row else [n - 1])
    words = (
        "2 tasks wait for each other: #0 rank 0",
        "waits for #149 rank 0: copy",
        " ... waits for #0",
    )
    refuse(book.plan(), DeadlockError, *words)


def test_a_long_cycle_names_its_first_tasks() -> None:
    book, n = two_ranks(), 130
    for row in range(n):
        book.add(Op.COPY, 0, send(), scratch(), [(row - 1) % n])
    refuse(
        book.plan(), DeadlockError, "130 tasks wait for each other: ", " waits for 30 more waits"
    )


def test_a_task_that_waits_for_itself():
    book = two_ranks()
    book.add(Op.COPY, 0, send(), recv(), [0])
    refuse(book.plan(), DeadlockError, "1 tasks wait for each other: #0 rank 0")


def both_receive_first(kind: int) -> Plan:
    book = two_ranks()
    for rank in range(2):
        first = book.add(Op.RECV, rank, [], recv(), peer=1 - rank)
        book.add(Op.SEND, rank, send(), [], [(first, kind)], peer=1 - rank)
    return book.plan()


def test_two_ranks_that_receive_before_they_send():
    refuse(
        both_receive_first(0), DeadlockError, "4 tasks", "#0 rank 0: recv from 1",
        "#1 rank 0: send to 1", "#2 rank 1: recv from 0", "#3 rank 1: send to 0",
    )  # fmt: skip
    with pytest.raises(DeadlockError) as caught:
        verify(both_receive_first(0))
    assert "rendezvous" not in str(caught.value)
    accept(both_receive_first(ON_START))


def test_two_ranks_that_send_before_they_receive_deadlock_under_rendezvous_only():
    book = two_ranks()
    for rank in range(2):
        first = book.add(Op.SEND, rank, send(), [], peer=1 - rank)
        book.add(Op.RECV, rank, [], recv(), [first], peer=1 - rank)
    plan = book.plan()
    refuse(
        plan, DeadlockError, "when sends wait for their receives (rendezvous)",
        "#0 rank 0: send to 1", "#1 rank 0: recv", "#2 rank 1: send to 0", "#3 rank 1: recv",
    )  # fmt: skip
    assert list(find_faults(plan)) == ["rendezvous_deadlock"]


# Races


def test_two_writes_without_an_order():
    book = two_ranks()
    book.add(Op.COPY, 0, send(0), recv())
    book.add(Op.COPY, 0, send(1), recv())
    refuse(book.plan(), RaceError, "nothing orders #0 rank 0", "and #1 rank 0", "same memory")


def test_a_receive_posted_before_an_earlier_read_of_its_memory_completes():
    book = two_ranks()
    book.add(Op.SEND, 0, recv(), [], peer=1)
    book.add(Op.RECV, 1, [], recv(), peer=0)
    book.add(Op.SEND, 1, scratch(), [], [1], peer=0)
    # The answer shows that the first message came, not that its buffer is free again.
    book.add(Op.RECV, 0, [], recv(), [(0, ON_START)], peer=1)
    refuse(book.plan(), RaceError, "#0 rank 0: send", "#3 rank 0: recv")


def test_a_start_orders_nothing_that_needs_completion():
    book = two_ranks()
    book.add(Op.COPY, 0, send(), recv())
    book.add(Op.COPY, 0, recv(), scratch(), [(0, ON_START)])
    refuse(book.plan(), RaceError, "#0 rank 0", "#1 rank 0")


def asked_back(last_edge: list[int | tuple[int, int]]) -> Plan:
    """Rank 0 writes, sends a token, gets one back, and writes again."""
    book = two_ranks()
    book.add(Op.COPY, 0, send(0), recv())
    book.add(Op.SEND, 0, [], [], [0], peer=1)
    book.add(Op.RECV, 1, [], [], peer=0)
    book.add(Op.SEND, 1, [], [], [2], peer=0)
    book.add(Op.RECV, 0, [], [], peer=1)
    book.add(Op.COPY, 0, send(1), recv(), last_edge)
    return book.plan()


def test_messages_order_accesses_when_their_receipt_is_complete():
    accept(asked_back([4]))
    refuse(asked_back([(4, ON_START)]), RaceError, "#0 rank 0: copy", "#5 rank 0: copy")


def in_shared_memory(edge: list[int | tuple[int, int]]) -> Plan:
    """Rank 0 writes to its node's memory, rank 1 reads it; a node without ranks stands first."""
    book = PlanBook([1, 1], elements=8)
    book.add(Op.COPY, 0, send(), [(SHARED, 0, N)])
    book.add(Op.COPY, 1, [(SHARED, 1, N)], recv(), edge)
    return book.plan().replace(shared_sizes=np.array([0, 8]))


def test_shared_memory_is_one_for_all_ranks_of_a_node():
    accept(in_shared_memory([0]))
    refuse(in_shared_memory([]), RaceError, "#0 rank 0", "#1 rank 1")


def test_tasks_of_no_elements_race_with_nobody():
    book = two_ranks()
    book.add(Op.COPY, 0, send(), recv())
    book.add(Op.COPY, 0, [(RECV, 1, 0)], [(RECV, 1, 0)])
    accept(book.plan())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("op", "reads", "writes"),
    [
        (Op.COPY, [(RECV, 0, 3)], [(RECV, 1, 3)]),
        (Op.COPY, [(RECV, 1, 3)], [(RECV, 0, 3)]),
        (Op.COPY, [(SEND, 0, 4)], [(RECV, 0, 2), (RECV, 1, 2)]),
        (Op.COPY, [(RECV, 2, 2), (RECV, 0, 2)], [(RECV, 0, 4)]),
        (Op.REDUCE, [(RECV, 0, 2), (RECV, 1, 2)], [(RECV, 0, 2)]),
    ],
)
def test_a_task_that_overlaps_itself(op, reads, writes):
    book = two_ranks()
    book.add(op, 0, reads, writes)
    refuse(book.plan(), RaceError, "#0 rank 0", "overlaps itself")


def test_a_task_that_writes_exactly_where_it_reads():
    book = two_ranks()
    book.add(Op.COPY, 0, [(RECV, 0, 4)], [(RECV, 0, 2), (RECV, 2, 2)])
    book.add(Op.REDUCE, 0, [(RECV, 0, 2), (RECV, 2, 2)], recv(), [0])
    accept(book.plan())


def test_elements_of_strided_extents_are_told_apart():
    """One copy writes the even elements, the other the odd ones, or the even ones again."""
    for first, is_legal in ((1, True), (0, False), (6, False)):
        book = two_ranks()
        book.add(Op.COPY, 0, [(SEND, 0, 3)], [(RECV, 0, 1)])
        book.add(Op.COPY, 0, [(SEND, 3, 3)], [(RECV, first, 1)])
        plan = book.plan()
        stride = -2 if first == 6 else 2
        patterns = np.array([NO_PATTERN[0], [2, 3, 0, 1], [0, 1, stride, 3]])
        plan = plan.replace(patterns=patterns)
        pattern = np.array([1, 2])
        writes = type(plan.writes)(
            plan.writes.indptr, plan.writes.buffer, plan.writes.offset, plan.writes.count, pattern
        )
        plan = plan.replace(writes=writes)
        if is_legal:
            accept(plan)
        else:
            refuse(plan, RaceError, "#0 rank 0", "#1 rank 0")


# Contents


def allreduce(op: object = "sum", order: tuple[int, int] = (0, 1)) -> PlanBook:
    """Return an allreduce of two ranks whose operands rank 1 takes in `order`."""
    book = two_ranks()
    for rank in range(2):
        peer = 1 - rank
        book.add(Op.SEND, rank, send(), [], peer=peer)
        got = book.add(Op.RECV, rank, [], scratch(), peer=peer)
        operands = {rank: send(), peer: scratch()}
        left, right = (0, 1) if rank == 0 else order
        book.add(Op.REDUCE, rank, operands[left] + operands[right], recv(), [got])
    return book


def test_what_computes_its_collective_is_accepted():
    accept(computing(allreduce().plan(), "allreduce"))
    accept(computing(allreduce(order=(1, 0)).plan(), "allreduce"))
    accept(computing(allreduce().plan(), "allreduce", op=AFFINE))


def test_operands_out_of_rank_order():
    refuse(
        computing(allreduce(order=(1, 0)).plan(), "allreduce", op=AFFINE), OperandOrderError,
        "rank 1 recv[0] holds operands out of rank order",
        "elements 0 of ranks 0 to 1", "#5 rank 1: reduce",
    )  # fmt: skip


def test_a_contribution_twice():
    book = allreduce()
    book.reads[5] = scratch() + scratch()
    refuse(
        computing(book.plan(), "allreduce"), DuplicateContributionError,
        "rank 1 recv[0] holds a contribution twice", "#5 rank 1: reduce",
    )  # fmt: skip


def test_a_contribution_that_is_missing():
    book = allreduce()
    book.rows[5]["op"] = Op.COPY
    book.reads[5] = scratch()
    refuse(
        computing(book.plan(), "allreduce"), MissingContributionError,
        "rank 1 recv[0] holds element 0 of rank 0", "ranks 0 to 1", "rank 1 is missing",
    )  # fmt: skip


def test_memory_that_nobody_has_written():
    book = allreduce()
    book.reads[5] = send() + scratch(1)
    refuse(
        computing(book.plan(), "allreduce"), UndefinedReadError,
        "rank 1 recv[0] holds undefined memory", "#5 rank 1: reduce",
    )  # fmt: skip
    refuse(
        computing(two_ranks().plan(), "bcast", root=1), UndefinedReadError,
        "rank 0 recv[0] holds undefined memory, not element 0 of rank 1",
    )  # fmt: skip


def test_elements_in_the_wrong_place():
    book = two_ranks()
    book.add(Op.SEND, 0, [(RECV, 1, 1), (RECV, 0, 1)], [], peer=1)
    book.add(Op.RECV, 1, [], recv(), peer=0)
    plan = computing(book.plan(), "bcast", root=0)
    refuse(plan, PostconditionError, "rank 1 recv[0] holds element 1 of rank 0, not element 0")


def test_different_elements_combined():
    book = allreduce()
    book.reads[5] = [*send(), (SCRATCH, 1, 1), (SCRATCH, 0, 1)]
    refuse(
        computing(book.plan(), "allreduce"), PostconditionError,
        "rank 1 recv[0] holds a combination of different elements", "#5 rank 1: reduce",
    )  # fmt: skip


def test_an_input_that_is_overwritten():
    book = allreduce()
    book.writes[5] = send(1)
    refuse(
        computing(book.plan(), "allreduce"), OverwrittenInputError,
        "#5 rank 1: reduce", "send[2:4]", "read-only",
    )  # fmt: skip


def test_a_buffer_too_small_for_the_collective():
    plan = PlanBook([0, 0], elements=1).plan()
    with pytest.raises(PostconditionError, match=r"rank 0: the recv buffer has 1 elements, .* 2$"):
        verify(computing(plan, "bcast", root=0))


def test_a_reduction_without_an_operation():
    book = PlanBook([0], elements=8)
    book.add(Op.COPY, 0, send(), recv())
    book.add(Op.REDUCE, 0, send() + send(), scratch())
    refuse(computing(book.plan(), "allgather"), PostconditionError, "#1 rank 0", "no operation")


def test_a_computation_that_writes():
    book = PlanBook([0], elements=8)
    book.add(Op.COPY, 0, send(), recv())
    book.add(Op.COMPUTE, 0, [], scratch())
    refuse(computing(book.plan(), "allgather"), PostconditionError, "#1 rank 0: compute")


def test_elements_shifted_in_a_circle_are_refused_at_once():
    """Cuts follow moves; following them round the circle would cut every element."""
    n = 1 << 40
    book = PlanBook([0], elements=n + 1)
    last: list[int | tuple[int, int]] = []
    for source, dest in (((RECV, 0), (SCRATCH, 1)), ((SCRATCH, 1), (RECV, 1))):
        last = [book.add(Op.COPY, 0, [(*source, n)], [(*dest, n)], last)]
    plan = computing(book.plan(), "bcast", count=n, root=0)
    with pytest.raises(PostconditionError, match=r"recv\[1\] holds element 0 of rank 0"):
        verify(plan)


def overlapping_task(moves: list[tuple[int, int, int, int, int]]) -> int | None:
    """Return the first task that writes an element twice, or reads one that another move writes."""
    for task in dict.fromkeys(move[0] for move in moves):
        own = [move for move in moves if move[0] == task]
        written = [(i, dest + k) for i, (_, _, _, dest, n) in enumerate(own) for k in range(n)]
        if len({element for _, element in written}) < len(written):
            return task
        for i, (_, left, right, dest, n) in enumerate(own):
            for place in (left, right):
                read = range(place, place + n) if place >= 0 else range(0)
                if any(e in read and not (j == i and place == dest) for j, e in written):
                    return task
    return None


def test_tasks_that_overlap_themselves_are_found():
    """An operand may have exactly the place of the result of the same move."""
    rng, n_found = random.Random(1), 0
    for _ in range(2000):
        moves = []
        for task in range(rng.randrange(1, 4)):
            at = rng.sample(range(0, 30, 3), rng.randrange(1, 4))
            for dest in at:
                left, right = (rng.choice([-1, dest, rng.randrange(30, 60), rng.randrange(30)])
                               for _ in range(2))  # fmt: skip
                moves.append((task, left, right, dest, rng.choice([1, 2, 3, 3, 4])))
        columns = np.array(moves, dtype=np.int64).T
        found = _first_overlap(Moves(*columns))
        expected = overlapping_task(moves)
        assert (None if found < 0 else moves[found][0]) == expected, moves
        n_found += expected is not None
    assert 300 < n_found < 1700


# Barriers


def barrier(reply: bool) -> Plan:
    """Rank 1 tells rank 0 that it has come; rank 0 answers, or does not."""
    book = two_ranks()
    book.add(Op.SEND, 1, [(SCRATCH, 0, 1)], [], peer=0)
    got = book.add(Op.RECV, 0, [], [(SCRATCH, 0, 1)], peer=1)
    if reply:
        book.add(Op.SEND, 0, [(SCRATCH, 0, 1)], [], [got], peer=1)
        book.add(Op.RECV, 1, [], [(SCRATCH, 1, 1)], peer=0)
    return computing(book.plan(), "barrier")


def told_around(n_nodes: int, kind: str, n_rounds: int, rows: list[int]) -> Plan:
    """Return rounds in which each rank tells another one what it has heard, of two ranks per node.

    In ``shift``, it is the next node; in ``xor``, the nodes are at distances 1, 2, 4, ...
    """
    book = PlanBook([rank // 2 for rank in range(2 * n_nodes)])
    for node in rows:
        # The second rank of a node reports to the first one, which answers at the end.
        first, second = 2 * node, 2 * node + 1
        book.add(Op.SEND, second, [], [], peer=first, tag=50)
        heard = book.add(Op.RECV, first, [], [], peer=second, tag=50)
        for number in range(n_rounds):
            apart = 1 if kind == "shift" else 1 << number
            to = (node + apart) % n_nodes if kind == "shift" else node ^ apart
            of = (node - apart) % n_nodes if kind == "shift" else node ^ apart
            book.add(Op.SEND, first, [], [], [heard], peer=2 * to, tag=number)
            heard = book.add(Op.RECV, first, [], [], [heard], peer=2 * of, tag=number)
        book.add(Op.SEND, first, [], [], [heard], peer=second, tag=51)
        book.add(Op.RECV, second, [], [], peer=first, tag=51)
    return book.plan()


@pytest.mark.parametrize(("kind", "n_nodes", "needed"), [("shift", 5, 4), ("xor", 8, 3)])
def test_barriers_of_folded_plans_are_judged_as_those_of_all_ranks(kind, n_nodes, needed):
    folding = Folding(Motion(kind, 2 * n_nodes, 2), np.empty((0, 3), np.int64))
    for n_rounds in range(needed + 1):
        whole = told_around(n_nodes, kind, n_rounds, [*range(n_nodes)])
        folded = fold(told_around(n_nodes, kind, n_rounds, [0]), folding)
        for plan in (whole, folded):
            if n_rounds == needed:
                check_barrier(plan, Execution.of(plan))
                continue
            with pytest.raises(MissingContributionError, match="before rank ") as early:
                check_barrier(plan, Execution.of(plan))
            rank, other = map(int, re.findall(r"rank (\d+)", str(early.value)))
            by = (rank // 2 - other // 2) % n_nodes if kind == "shift" else rank // 2 ^ other // 2
            assert by >= 1 << n_rounds if kind == "xor" else by > n_rounds


def test_a_barrier_that_lets_a_rank_leave_early():
    accept(barrier(reply=True))
    refuse(
        barrier(reply=False), MissingContributionError,
        "rank 1 may leave the barrier before rank 0 has come",
    )  # fmt: skip


# Form


def test_the_program_of_one_rank_has_no_proof():
    spec = make_spec("bcast", "binomial", 4, count=N)
    with pytest.raises(PlanError, match=r"rank 2's program alone; only the plan of all ranks"):
        verify(compile_plan(spec, rank=2))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("op", 6), ("rank", 2), ("rank", -1), ("peer", 2), ("peer", -1), ("tag", -1),
        ("stage", 3), ("phase", 1), ("round", -1), ("lane", -2),
    ],
)  # fmt: skip
def test_entries_out_of_range(column, value):
    plan = allreduce().plan()
    values = getattr(plan, column).copy()
    values[0] = value
    with pytest.raises(PlanFormatError, match=r"^[^\n]+$"):
        verify(plan.replace(**{column: values}))


@pytest.mark.quick
@pytest.mark.parametrize("task", [-1, 6, 2**31 - 1])
def test_dependencies_on_tasks_that_do_not_exist(task):
    plan = allreduce().plan()
    deps = Dependencies(plan.deps.indptr, np.full_like(plan.deps.task, task), plan.deps.kind)
    with pytest.raises(PlanFormatError, match=r"deps\.task\[0\]"):
        verify(plan.replace(deps=deps))


def test_sets_of_ranks_move_as_their_ranks_do():
    for motion in (Motion("shift", 12, 3), Motion("xor", 16, 2), Motion("xor", 16, 1)):
        everybody = (1 << motion.size) - 1
        for block in range(motion.n_blocks):
            for ranks in ([0], [1, 2, motion.size - 1], range(motion.size)):
                moved = sum(1 << motion.move(rank, block) for rank in ranks)
                bits = sum(1 << rank for rank in ranks)
                assert _moved(bits, block, motion, everybody) == moved
