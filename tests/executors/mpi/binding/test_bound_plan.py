"""Bound plans after errors, on one rank."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding import bound_plan
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine import progress_thread
from collplan.executors.mpi.errors import BindError
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.plan import Buffer, Op
from mpi_plans import PlanWriter


class Failing:
    """An operation that fails once."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [ZeroDivisionError("of my own")]

    def apply(self, left: Any, right: Any, out: Any) -> None:
        if self.errors:
            raise self.errors.pop()


def reducing() -> PlanWriter:
    writer = PlanWriter([[4, 4, 0]])
    operands = ((Buffer.SEND, 0, 4), (Buffer.RECV, 0, 4))
    writer.add(Op.REDUCE, 0, reads=operands, writes=[(Buffer.RECV, 0, 4)])
    return writer


def waiting() -> PlanWriter:
    writer = PlanWriter([[4, 4, 0]])
    writer.add(Op.COMPUTE, 0, after=[1])
    writer.add(Op.COMPUTE, 0, after=[0])
    return writer


def truncated() -> PlanWriter:
    writer = PlanWriter([[4, 4, 0]])
    writer.send(0, 0, (Buffer.SEND, 0, 4))
    writer.recv(0, 0, (Buffer.RECV, 0, 2))
    return writer


@pytest.mark.quick
@pytest.mark.parametrize(
    ("writer", "error"),
    [
        (reducing(), ZeroDivisionError),
        (waiting(), DeadlockError),
        (truncated(), MPI.Exception),
    ],
    ids=["operation", "deadlock", "MPI"],
)
def test_a_failed_plan_says_its_first_error_and_can_be_freed(
    writer: PlanWriter, error: type[Exception]
) -> None:
    arrays = np.zeros(4, np.int32), np.zeros(4, np.int32)
    bound = bind(writer.plan(), MPI.COMM_SELF, *arrays, operation=Failing())
    with pytest.raises(error) as first:
        bound()
    for call in (bound.wait, bound.test):
        with pytest.raises(error) as again:
            call()
        assert again.value is first.value
    for call in (bound, bound.start, partial(bound.rebind, *arrays)):
        with pytest.raises(BindError, match=r"failed before .*; bind it again"):
            call()
    bound.free()
    with pytest.raises(BindError, match="was freed"):
        bound()


def test_memory_under_a_thread_that_goes_on_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = np.zeros(4, np.int32), np.zeros(4, np.int32)
    bound = bind(reducing().plan(), MPI.COMM_SELF, *arrays, operation=Failing())
    bound._has_background = True
    engine = bound._engine
    monkeypatch.setattr(engine, "end_thread", lambda: False)
    with pytest.warns(RuntimeWarning, match="did not end in time; the plan's memory is not freed"):
        bound.free()
    assert any(engine in kept for kept in bound_plan._kept)  # type: ignore[operator]
    bound.free()


def test_a_thread_says_whether_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_thread, "LONGEST_JOIN_S", 0.01)
    going, word, wake = threading.Event(), np.zeros(1, np.int64), progress_thread.semaphore()
    owner = Failing()
    thread = progress_thread.ProgressThread(
        "test", going.wait, word.ctypes.data, wake.ctypes.data, owner
    )
    assert not thread.stop()
    assert not progress_thread.stop_all()
    going.set()
    thread._thread.join()
    assert thread.stop()
