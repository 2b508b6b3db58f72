"""The simulator refuses plans with entries that lead outside of the plan, as writers make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collplan.executors.cost import simulate, simulate_each
from collplan.planner import compile_plan
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Network, parse_spec


@pytest.fixture
def plan() -> Plan:
    spec = {
        "machine": {"nodes": 2, "ranks_per_node": 2},
        "collective": {"kind": "allreduce", "count": 16},
        "algorithms": "ring",
    }
    return compile_plan(parse_spec(spec))


@pytest.mark.quick
@pytest.mark.parametrize("value", [-5, 100, 2**30])
@pytest.mark.parametrize("column", ["rank", "peer", "core", "op", "lane"])
def test_an_entry_out_of_range_is_refused(plan: Plan, column: str, value: int) -> None:
    if value > 0 and column in ("core", "lane"):
        value = -2
    values = np.array(getattr(plan, column)).astype(np.int64)
    row = int(np.flatnonzero(plan.op == Op.SEND)[0])
    values[row] = min(value, np.iinfo(getattr(plan, column).dtype).max)
    with pytest.raises(PlanFormatError, match=rf"{column}\[{row}\] is -?\d+, must be "):
        simulate(plan.replace(**{column: values}))


def test_lanes_that_the_machine_does_not_have_are_as_fast_as_its_fastest(plan: Plan) -> None:
    lanes = np.where(plan.lane >= 0, plan.lane + 1, plan.lane)
    assert simulate(plan.replace(lane=lanes)).makespan_ns == simulate(plan).makespan_ns


@pytest.mark.quick
@pytest.mark.parametrize("row", [-1, 60, 2**30])
def test_a_dependency_on_no_task_is_refused(plan: Plan, row: int) -> None:
    assert plan.n_tasks == 60
    task = np.array(plan.deps.task)
    task[3] = row
    bad = plan.replace(deps=replace(plan.deps, task=task))
    with pytest.raises(PlanFormatError, match=rf"deps\.task\[3\] is {row}, must be 0 to 59"):
        simulate(bad)
    with pytest.raises(PlanFormatError, match=r"deps\.task\[3\]"):
        next(simulate_each(bad, [Network()]))


@pytest.mark.quick
@pytest.mark.parametrize("part", ["deps", "reads", "writes"])
def test_rows_that_do_not_rise_are_refused(plan: Plan, part: str) -> None:
    columns = getattr(plan, part)
    indptr = np.array(columns.indptr)
    indptr[5] = indptr[-1] + 1000
    with pytest.raises(PlanFormatError, match=rf"{part}\.indptr"):
        simulate(plan.replace(**{part: replace(columns, indptr=indptr)}))
