"""Programs of ranks, as the loop runs them."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.program.program import (
    own_computations,
    rank_program,
    why_not_apart,
)
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
