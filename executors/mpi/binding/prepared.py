"""What one rank can find out and check about a plan before it meets the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.binding.plan_check import check_plan
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.program import Program, rank_program
from collplan.executors.mpi.stall.notices import largest_tag
from collplan.planner.collective.operations import get_operation
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.reduction import Applies
    from collplan.planner.plan.plan import Plan

Array = npt.NDArray[Any]


class Prepared:
    """What one rank can find out and check alone."""

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        sendbuf: Array | None,
        recvbuf: Array | None,
        operation: Applies | None,
    ) -> None:
        if comm.size != plan.n_ranks:
            raise BindError(
                f"the plan is for {plan.n_ranks} ranks, the communicator has {comm.size}; "
                f"start {plan.n_ranks} ranks or compile for {comm.size}"
            )
        if plan.only_rank not in (None, comm.rank):
            raise BindError(
                f"the plan holds the program of rank {plan.only_rank}, this is rank {comm.rank}; "
                f"compile with rank={comm.rank}"
            )
        check_plan(plan)
        self.buffers = Buffers(plan, comm.rank)
        self.arrays: list[Array] | None = None
        self.dtype = self.buffers.spec_dtype
        if sendbuf is not None or recvbuf is not None or not self.buffers.is_any_needed:
            self.arrays = self.buffers.check(sendbuf, recvbuf)
            self.dtype = self.arrays[0].dtype
        self.program = rank_program(plan, comm.rank)
        _check_tags(self.program, comm)
        self.operation = _resolve_operation(plan, self.program, operation)

    @property
    def dtype_name(self) -> str:
        """Return what the buffers hold, in words."""
        return str(self.dtype) if self.dtype.names is None else str(self.dtype.fields)

    @property
    def operation_name(self) -> str | None:
        """Return what the program reduces by, in words."""
        if self.operation is None:
            return None
        return str(getattr(self.operation, "name", type(self.operation).__name__))


def _check_tags(program: Program, comm: MPI.Intracomm) -> None:
    largest = int(program.tag.max(initial=0))
    # The largest of all is the watchdog's.
    limit = largest_tag(comm) - 1
    if largest > limit:
        raise BindError(
            f"the plan uses tag {largest}, this MPI allows it up to {limit}; "
            "compile with fewer or larger segments"
        )


def _resolve_operation(plan: Plan, program: Program, operation: Applies | None) -> Applies | None:
    if operation is not None or not np.any(program.op == Op.REDUCE):
        return operation
    op = plan.spec.collective.op if plan.spec else None
    if op is None:
        raise BindError("the plan reduces but names no operation; pass operation=")
    return get_operation(op.name)
