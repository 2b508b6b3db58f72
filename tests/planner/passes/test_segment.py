"""Segments: no message is longer than asked, and short plans stay as they are."""

from __future__ import annotations

from collplan.planner import compile_plan
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
