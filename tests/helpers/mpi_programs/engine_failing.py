"""The engine, left with plans that never complete: errors, deadlocks, interrupts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.planner.collective.operations import get_operation, register_operation
from collplan.planner.errors import DeadlockError, PlanFormatError
from collplan.planner.plan.plan import Buffer, Op
from mpi_plans import PlanWriter, interrupt, refuses, ring_allreduce_max

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
MAX = get_operation("max")


def fails(error_class: int, call: Callable[[], object]) -> None:
    """Fail unless MPI raises an error of a class."""
    found = MPI.SUCCESS
    try:
        call()
    except MPI.Exception as error:
        found = error.Get_error_class()
    assert found == error_class, (found, error_class)


def errors_of_mpi() -> None:
    """MPI's errors are its own exceptions, whatever the communicator's error handler."""
    writer = PlanWriter([[4, 4, 0]] * p)
    for r in range(p):
        writer.send(r, r, (Buffer.SEND, 0, 4))
        writer.recv(r, r, (Buffer.RECV, 0, 2))
    arrays = np.zeros(4, np.int32), np.zeros(4, np.int32)
    fatal = comm.Dup()
    fatal.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    bound = bind(writer.plan(), fatal, *arrays)
    fails(MPI.ERR_TRUNCATE, bound)
    wrong = PlanWriter([[4, 4, 0]] * p)
    for r in range(p):
        wrong.send(r, p + 5, (Buffer.SEND, 0, 4))
    # A rank that is not there never gets as far as MPI.
    words = f"peer[0] is {p + 5}, must be -1 to {p - 1}"
    refuses(PlanFormatError, words, lambda: bind(wrong.plan(), comm, *arrays))


def deadlocks() -> None:
    writer = PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        first = 2 * r
        for other in (first + 1, first):
            writer.add(Op.COMPUTE, r, after=[other])
    one = np.zeros(1, np.int32)
    bound = bind(writer.plan(), comm, one, one.copy())
    refuses(DeadlockError, "2 tasks of this rank wait for each other", bound)


def operations_of_ones_own() -> None:
    """Python reduces by what has no machine code; what it raises comes out of the wait."""
    own = register_operation("difference", np.subtract, commutative=False)
    arrays = np.arange(5, dtype=np.int32) + rank, np.zeros(5, np.int32)
    plan = ring_allreduce_max(max(p, 2), 5) if p > 1 else None
    if plan is None:
        return
    with bind(plan, comm, *arrays, operation=own) as bound:
        assert bound.why_callback == "operation difference on int32 has no compiled form"
        bound()
    with bind(plan, comm, *arrays, operation=MAX) as bound:
        assert bound.why_callback is None

    class Failing:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def apply(self, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
            raise self.error

    for error in (ZeroDivisionError("of my own"), KeyboardInterrupt("of my own")):
        bound = bind(plan, comm, *arrays, operation=Failing(error))
        for call in (bound.start, bound.wait):
            raised = None
            try:
                call()
            except type(error) as found:
                raised = found
                break
        assert raised is error

    class OnDevice:
        __cuda_array_interface__ = None

    words = "recvbuf lies in a device's memory"
    refuses(BindError, words, lambda: bind(plan, comm, arrays[0], OnDevice(), operation=MAX))  # type: ignore[arg-type]


def interrupts() -> None:
    """Signals are handled while a rank waits for a message that nobody sends."""
    writer = PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        writer.recv(r, r, (Buffer.RECV, 0, 1))
    one = np.zeros(1, np.int32)
    bound = bind(writer.plan(), comm, one, one.copy())
    interrupt(bound, after_s=0.1)
    refuses(BindError, "still running: it cannot be given", partial(bound.rebind, one, one))


for case in (
    operations_of_ones_own,
    deadlocks,
    errors_of_mpi,
    interrupts,
):
    case()
    comm.Barrier()
if rank == 0:
    print("passed", flush=True)
