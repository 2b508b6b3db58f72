"""Comparison of a rank's program with that compiled for it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from collplan.planner import Plan
from collplan.planner.plan.plan import COLUMNS, Buffer


def assert_equal(one: Plan, other: Plan) -> None:
    """All that a rank's program says is equal; memory of others is nobody's business."""
    assert one.only_rank == other.only_rank
    for name in (*COLUMNS, "patterns", "rank_node", "rank_lane", "rank_core"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
    for name in ("reads", "writes", "deps", "foreign"):
        for field in fields(getattr(one, name)):
            mine, theirs = (getattr(getattr(plan, name), field.name) for plan in (one, other))
            assert np.array_equal(mine, theirs), f"{name}.{field.name}"
            assert mine.dtype == theirs.dtype, f"{name}.{field.name}"
    callers = slice(None, Buffer.SCRATCH)
    assert np.array_equal(one.buffer_sizes[:, callers], other.buffer_sizes[:, callers])
    assert np.array_equal(one.buffer_sizes[one.only_rank], other.buffer_sizes[one.only_rank])
    node = one.rank_node[one.only_rank]
    assert one.shared_sizes[node] == other.shared_sizes[node]
    mine = one.rank_node == node
    assert np.array_equal(one.mirrors[mine], other.mirrors[mine])
    assert (one.itemsize, one.spec, one.phases) == (other.itemsize, other.spec, other.phases)
