"""Plans: small, read-only, and left alone by `replace`."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.plan import COLUMNS, CSR_PARTS, TABLES, Op
from oracle import make_spec


def test_plans_stay_within_96_bytes_a_task():
    plan = compile_plan(make_spec("allreduce", "ring", 64, count=640))
    assert plan.nbytes <= 96 * plan.n_tasks


def test_a_plan_is_shown_by_its_size():
    spec = make_spec("allgather", "ring", 0, {"nodes": 4, "ranks_per_node": 2}, count=8)
    assert repr(compile_plan(spec)) == "<Plan: 120 tasks; ranks 8, nodes 4>"
    assert repr(compile_plan(spec, rank=3)) == "<Plan: 15 tasks of rank 3; ranks 8, nodes 4>"
    folded = "<Plan: 30 tasks of one node, folded; ranks 8, nodes 4>"
    assert repr(compile_folded(spec)) == folded


def test_columns_are_read_only():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    for array in (plan.op, plan.reads.offset, plan.deps.task, plan.buffer_sizes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_nobody_changes_a_plan_by_an_array_that_it_was_made_of():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    given = np.arange(plan.n_tasks, dtype=np.int32)
    changed = plan.replace(priority=given)
    given[0] = 77
    assert changed.priority[0] == 0
    taken, view = (np.arange(plan.n_tasks, dtype=np.int32) for _ in "12")
    made = replace(plan, priority=taken, rank=view[:])
    with pytest.raises(ValueError, match="read-only"):
        taken[0] = 77
    view[0] = 77
    assert (made.priority[0], made.rank[0]) == (0, 0)
    for column in vars(RankPlaces.of(plan.spec.machine)).values():
        assert isinstance(column, int) or not column.flags.writeable


@pytest.mark.quick
@pytest.mark.parametrize(
    ("part", "column"), [("reads", "count"), ("writes", "pattern"), ("deps", "kind")]
)
def test_columns_of_other_lengths_are_refused(part, column):
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    columns = getattr(plan, part)
    short = replace(columns, **{column: getattr(columns, column)[:-1]})
    with pytest.raises(PlanFormatError, match=rf"^{part}\.{column} has \d+ entries, the other "):
        plan.replace(**{part: short})


def test_replace_keeps_the_plan_as_it_was():
    plan = compile_plan(make_spec("bcast", "chain", 3, count=3))
    other = plan.replace(priority=np.zeros(plan.n_tasks, dtype=np.int32))
    assert other.priority.max(initial=0) == 0
    assert plan.priority.max() == 1
    assert {field.name for field in fields(other)} == {field.name for field in fields(plan)}


def test_columns_are_stored_in_the_types_that_they_are_declared_with():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    assert {name: dtype.name for name, dtype in COLUMNS.items() if dtype != np.int32} == {
        "op": "int8", "lane": "int16", "phase": "int16", "stage": "int8", "duration_ns": "int64"
    }  # fmt: skip
    assert {**COLUMNS, **TABLES, "apart": np.int32} == plan.TYPES
    for name, dtype in plan.TYPES.items():
        assert getattr(plan, name).dtype == dtype
    for name, kind in CSR_PARTS.items():
        part = getattr(plan, name)
        assert all(getattr(part, column).dtype == dtype for column, dtype in kind.TYPES.items())


def test_a_column_of_equal_rows_is_stored_once():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    n = plan.n_tasks
    for column in (np.full(n, 3), [3] * n, np.broadcast_to(np.int64(3), n)):
        stored = plan.replace(round=column).round
        assert (stored.strides, stored.dtype) == ((0,), np.int32)
        assert stored.tolist() == [3] * n
    ends = np.full(n, 3)
    ends[1] = 4
    assert plan.replace(round=ends).round.tolist() == ends.tolist()


def test_tasks_are_measured_by_what_they_write_or_else_read():
    plan = compile_plan(make_spec("allreduce", "ring", 3, count=7))
    read, written = plan.sizes
    for row, task in enumerate(plan.tasks()):
        assert read[row] == sum(extent.count for extent in task.reads)
        assert written[row] == sum(extent.count for extent in task.writes)
        assert plan.elements[row] == (read[row] if task.op is Op.SEND else written[row])
