"""Segments: no message is longer than asked, and short plans stay as they are."""

from __future__ import annotations

from itertools import product

import numpy as np

from collplan.planner import compile_plan
from collplan.planner.plan.hazards import stated_edges
from oracle import make_spec


def test_segment_leaves_short_plans_alone_and_bounds_every_message():
    whole = compile_plan(make_spec("bcast", "chain", 4, count=100))
    spec = make_spec("bcast", "chain", 4, count=100, passes=[{"name": "segment", "max_bytes": 800}])
    assert compile_plan(spec).n_tasks == whole.n_tasks
    spec = spec.replace(passes=({"name": "segment", "max_bytes": 240},))
    plan = compile_plan(spec)
    assert plan.n_tasks == 4 * whole.n_tasks
    assert plan.elements.max() == 30
    assert plan.elements.sum() == whole.elements.sum()


def test_what_waits_for_a_message_waits_for_all_its_segments() -> None:
    limit, cut = {"name": "limit_requests", "local": 1}, {"name": "segment", "max_bytes": 16}
    fields = {"count": 7, "datatype": "float64"}
    whole = compile_plan(make_spec("allgather", "linear", 5, passes=[limit], **fields))
    plan = compile_plan(make_spec("allgather", "linear", 5, passes=[limit, cut], **fields))
    n_segments = np.maximum(1, -(-whole.elements // 2))
    rows = np.split(np.arange(plan.n_tasks), np.cumsum(n_segments)[:-1])
    found = set(zip(plan.deps.task.tolist(), plan.deps.owner().tolist(), strict=True))
    before, after, _ = stated_edges(whole)
    assert len(before)
    for first, second in zip(before, after, strict=True):
        pairs = set(product(rows[first].tolist(), rows[second].tolist()))
        assert len(pairs) == 16
        assert pairs <= found
