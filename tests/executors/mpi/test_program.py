"""Programs of ranks, as the loop runs them."""

from __future__ import annotations

from collplan.executors.mpi.program.program import rank_program
from collplan.planner.plan.plan import Op
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
