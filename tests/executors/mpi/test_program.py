"""Programs of ranks, as the loop runs them."""

from __future__ import annotations

from ctypes import c_int
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.program.calls import Calls, _Own
from collplan.executors.mpi.program.messages import handle_of
from collplan.executors.mpi.program.program import (
    own_computations,
    rank_program,
    why_not_apart,
)
from collplan.planner.plan.plan import NONE, Op
from mpi_plans import PlanWriter


def test_program_is_in_order_of_priority() -> None:
    """Rows of another rank are left out, and releases follow the new order."""
    writer = PlanWriter([[1, 1, 0]] * 2)
    first = writer.add(Op.COMPUTE, 1, priority=5)
    writer.add(Op.COMPUTE, 0)
    second = writer.add(Op.COMPUTE, 1, priority=5, after=[first])
    writer.add(Op.COMPUTE, 1, priority=1, after=[first, (second, 1)])
    program = rank_program(writer.plan(), 1)
    assert program.row.tolist() == [3, 0, 2]
    assert program.n_before.tolist() == [2, 0, 1]
    assert program.on_completion.indptr.tolist() == [0, 0, 2, 2]
    assert program.on_completion.task.tolist() == [0, 2]
    assert program.on_start.indptr.tolist() == [0, 0, 0, 1]
    assert program.on_start.task.tolist() == [0]


def test_computations_that_wait_for_other_ranks_or_they_for_it_cannot_run_apart() -> None:
    writer = PlanWriter([[1, 1, 0]] * 2)
    alone = [writer.add(Op.COMPUTE, rank, core=rank) for rank in range(2)]
    first = writer.add(Op.COMPUTE, 0)
    second = writer.add(Op.COMPUTE, 1, after=[first], core=1)
    plan = writer.plan().replace(shared_sizes=np.array([1]))
    for rank, tied in enumerate((first, second)):
        program = rank_program(plan, rank)
        computes = own_computations(plan, program, rank)
        assert program.row[computes].tolist() == [alone[rank], tied]
        assert why_not_apart(program, computes & (program.row != tied)) is None
        why = why_not_apart(program, computes)
        assert why is not None
        assert why.startswith(f"compute #{tied} on the rank's own core waits")


SEND, RECV, REQUEST = "sent", "received", "request"
INT, SUM = "int", "sum"


@pytest.mark.ranks(1)
def test_arguments_of_calls_are_those_of_mpis_functions(comm: MPI.Intracomm) -> None:
    """Counts per rank are needed only if blocks differ; a root passes what only roots have."""
    handles = {INT: handle_of(MPI.INT), SUM: handle_of(MPI.SUM), "comm": handle_of(comm)}
    calls = Calls.__new__(Calls)
    calls._kept = []
    elements: Any = SimpleNamespace(datatype=MPI.INT, operation=MPI.SUM)
    calls._elements = elements

    def made(
        kind: str, root: int, n_read: int, n_written: int, *blocks: int
    ) -> tuple[str, list[Any]]:
        name, found = calls._arguments(_Own(kind, comm, root, n_read, n_written, blocks), 4)
        words = {value: word for word, value in handles.items()}
        return name, [words.get(one, one) for one in found]

    def vectors(found: list[Any], *places: int) -> list[list[int]]:
        """Return the arrays at some places, of three numbers each."""
        return [list((c_int * 3).from_address(found[place])) for place in places]

    end = ["comm", REQUEST]
    assert made("barrier", NONE, 0, 0) == ("Ibarrier", end)
    assert made("bcast", 0, 7, 0) == ("Ibcast", [SEND, 7, INT, 0, *end])
    assert made("bcast", 1, 0, 7) == ("Ibcast", [RECV, 7, INT, 1, *end])
    assert made("alltoall", NONE, 7, 7) == ("Ialltoall", [SEND, 7, INT, RECV, 7, INT, *end])
    assert made("allreduce", NONE, 7, 7) == ("Iallreduce", [SEND, RECV, 7, INT, SUM, *end])
    assert made("reduce", 1, 7, 0) == ("Ireduce", [SEND, RECV, 7, INT, SUM, 1, *end])
    whole = ("Ireduce_scatter_block", [SEND, RECV, 3, INT, SUM, *end])
    assert made("reduce_scatter_block", NONE, 6, 3, 3, 3) == whole
    name, found = made("reduce_scatter_block", NONE, 9, 2, 2, 3, 4)
    assert (name, found[:2], found[3:]) == ("Ireduce_scatter", [SEND, RECV], [INT, SUM, *end])
    assert vectors(found, 2) == [[2, 3, 4]]
    name, found = made("exscan", NONE, 7, 0)
    assert (name, found[0], found[2:]) == ("Iexscan", SEND, [7, INT, SUM, *end])
    assert calls._kept[-1].nbytes == 28
    assert found[1] == calls._kept[-1].ctypes.data
    assert made("exscan", NONE, 7, 7) == ("Iexscan", [SEND, RECV, 7, INT, SUM, *end])
    for kind in ("gather", "allgather"):
        root = [] if kind == "allgather" else [1]
        name, found = made(kind, *(root or [NONE]), 3, 6, 3, 3)
        assert (name, found) == (f"I{kind}", [SEND, 3, INT, RECV, 3, INT, *root, *end])
        name, found = made(kind, *(root or [NONE]), 2, 9, 2, 3, 4)
        assert (name, found[:4]) == (f"I{kind}v", [SEND, 2, INT, RECV])
        assert found[6:] == [INT, *root, *end]
        assert vectors(found, 4, 5) == [[2, 3, 4], [0, 2, 5]]
    for root, received in ((0, int(MPI.IN_PLACE)), (1, RECV)):
        name, found = made("scatter", root, 6, 3, 3, 3)
        assert (name, found) == ("Iscatter", [SEND, 3, INT, received, 3, INT, root, *end])
        name, found = made("scatter", root, 9, 2, 2, 3, 4)
        assert (name, found[0], found[3:]) == (
            "Iscatterv", SEND, [INT, received, 2, INT, root, *end],
        )  # fmt: skip
        assert vectors(found, 1, 2) == [[2, 3, 4], [0, 2, 5]]
