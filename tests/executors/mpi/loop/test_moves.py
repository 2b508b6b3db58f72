"""Local tasks on any extents do what element lists say; no MPI is needed for them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.mpi.engine.loop_memory import LoopMemory
from collplan.executors.mpi.engine.reduction import Callback
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.program.program import rank_program
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import Buffer, Op, Plan
from mpi_plans import PlanWriter
from random_extents import BUFFERS, PATTERNS, SIZE, Subtracting, elements, sides
from tiers import examples


def run(plan: Plan, buffers: list[np.ndarray]) -> None:
    """Run a plan twice; what is reduced is subtracted in Python."""
    program = rank_program(plan, 0)
    subtraction = Callback(Subtracting(), buffers[0].dtype)
    address = subtraction.address
    memory = LoopMemory(program, reduce=address)
    memory.use(buffers)
    for _ in range(2):
        assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE


@settings(deadline=None, max_examples=examples(60))
@given(st.data(), st.sampled_from([Op.COPY, Op.REDUCE]))
def test_any_extents(data: st.DataObject, op: Op) -> None:
    """Twice in a row, with reads and writes in the same buffers or not."""
    n = data.draw(st.integers(1, 14))
    writes = data.draw(sides(n, data.draw(st.sampled_from([BUFFERS, (Buffer.RECV,)]))))
    reads = data.draw(sides(n, BUFFERS))
    if op is Op.REDUCE:
        reads += data.draw(sides(n, BUFFERS))
    writer = PlanWriter([[SIZE] * 3], patterns=PATTERNS[1:])
    writer.add(op, 0, reads, writes)
    plan = writer.plan()
    check_format(plan)
    buffers = [np.arange(SIZE, dtype=np.int32) * (3 + b) for b in range(3)]
    wanted = [buffer.copy() for buffer in buffers]
    for _ in range(2):
        values = [int(wanted[b][i]) for interval in reads for b, i in elements(interval)]
        if op is Op.REDUCE:
            values = [a - b for a, b in zip(values[:n], values[n:], strict=True)]
        cells = [cell for interval in writes for cell in elements(interval)]
        for (b, i), value in zip(cells, values, strict=True):
            wanted[b][i] = value
    run(plan, buffers)
    for buffer, want in zip(buffers, wanted, strict=True):
        assert np.array_equal(buffer, want)


def test_nothing_to_do() -> None:
    writer = PlanWriter([[SIZE] * 3], itemsize=8)
    writer.add(Op.COPY, 0, [(Buffer.SEND, 0, 0)], [(Buffer.RECV, 0, 0)])
    writer.add(Op.COMPUTE, 0)
    buffers = [np.zeros(SIZE) + buffer for buffer in range(3)]
    run(writer.plan(), buffers)
    assert [set(buffer) for buffer in buffers] == [{0.0}, {1.0}, {2.0}]
