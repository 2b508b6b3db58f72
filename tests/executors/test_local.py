"""The local executor on plans written by hand: results, orders, and plans that never end."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collplan.executors.local import run_local
from collplan.planner import Plan
from collplan.planner.collective.operations import get_operation
from collplan.planner.errors import DeadlockError, PlanError, UnmatchedRecvError
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.plan.ragged import ON_START
from collplan.planner.rewrite.rank_program import restrict
from mpi_plans import PlanWriter


def buffers(n_ranks: int, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return send buffers that all differ, and receive buffers of zeros; without a spec, bytes."""
    sent = [np.arange(n, dtype=np.uint8) + 10 * (rank + 1) for rank in range(n_ranks)]
    return sent, [np.zeros(n, dtype=np.uint8) for _ in range(n_ranks)]


def exchange() -> Plan:
    """Two ranks swap their vectors; each then adds its own to what came."""
    writer = PlanWriter([[4, 4, 4]] * 2, itemsize=1)
    for rank in (0, 1):
        writer.send(rank, 1 - rank, (Buffer.SEND, 0, 4))
        came = writer.recv(rank, 1 - rank, (Buffer.SCRATCH, 0, 4))
        writer.add(
            Op.REDUCE,
            rank,
            [(Buffer.SEND, 0, 4), (Buffer.SCRATCH, 0, 4)],
            [(Buffer.RECV, 0, 4)],
            after=[came],
        )
    return writer.plan()


@pytest.mark.quick
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_every_legal_order_has_the_same_result(seed: int | None) -> None:
    sent, received = buffers(2, 4)
    order = None if seed is None else random.Random(seed)
    run_local(exchange(), sent, received, operation=get_operation("sum"), order=order)
    for result in received:
        assert result.tolist() == (sent[0] + sent[1]).tolist()


def test_buffers_of_no_elements_may_be_none() -> None:
    writer = PlanWriter([[1, 0, 0], [0, 1, 0]], itemsize=1)
    writer.send(0, 1, (Buffer.SEND, 0, 1))
    writer.recv(1, 0, (Buffer.RECV, 0, 1))
    result = np.zeros(1, dtype=np.uint8)
    run_local(writer.plan(), [np.array([7], dtype=np.uint8), None], [None, result])
    assert result.tolist() == [7]


def test_a_plan_without_tasks_ends_at_once() -> None:
    run_local(PlanWriter([[0, 0, 0]] * 3, itemsize=1).plan(), [None] * 3, [None] * 3)


def test_receives_that_wait_for_each_other_are_a_deadlock() -> None:
    """Each send waits for a receive that the other rank's send would have to reach first."""
    writer = PlanWriter([[1, 1, 0]] * 2, itemsize=1)
    for rank in (0, 1):
        came = writer.recv(rank, 1 - rank, (Buffer.RECV, 0, 1))
        writer.send(rank, 1 - rank, (Buffer.SEND, 0, 1), after=[came])
    with pytest.raises(DeadlockError, match="4 tasks can never run, among them"):
        run_local(writer.plan(), *buffers(2, 1))


def test_a_dependency_on_a_start_does_not_wait_for_the_end() -> None:
    writer = PlanWriter([[1, 1, 0]] * 2, itemsize=1)
    for rank in (0, 1):
        came = writer.recv(rank, 1 - rank, (Buffer.RECV, 0, 1))
        writer.send(rank, 1 - rank, (Buffer.SEND, 0, 1), after=[(came, ON_START)])
    sent, received = buffers(2, 1)
    run_local(writer.plan(), sent, received)
    assert [one.tolist() for one in received] == [[20], [10]]


def test_messages_that_do_not_match_are_refused() -> None:
    writer = PlanWriter([[1, 1, 0]] * 2, itemsize=1)
    writer.recv(1, 0, (Buffer.RECV, 0, 1))
    with pytest.raises(UnmatchedRecvError):
        run_local(writer.plan(), *buffers(2, 1))


def test_the_program_of_one_rank_is_refused() -> None:
    sent, received = buffers(2, 4)
    with pytest.raises(PlanError, match="rank 1's program alone, which cannot be executed"):
        run_local(restrict(exchange(), 1), sent, received, operation=get_operation("sum"))
