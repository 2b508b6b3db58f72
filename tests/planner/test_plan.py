"""Plans: small, read-only, and left alone by `replace`."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from collplan.planner import compile_plan
from oracle import make_spec


def test_plans_stay_within_96_bytes_a_task():
    plan = compile_plan(make_spec("allreduce", "ring", 64, count=640))
    assert plan.nbytes <= 96 * plan.n_tasks


def test_columns_are_read_only():
    plan = compile_plan(make_spec("allreduce", "ring", 4, count=8))
    for array in (plan.op, plan.reads.offset, plan.deps.task, plan.buffer_sizes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_replace_keeps_the_plan_as_it_was():
    plan = compile_plan(make_spec("bcast", "chain", 3, count=3))
    other = plan.replace(priority=np.zeros(plan.n_tasks, dtype=np.int32))
    assert other.priority.max(initial=0) == 0
    assert plan.priority.max() == 1
    assert {field.name for field in fields(other)} == {field.name for field in fields(plan)}
