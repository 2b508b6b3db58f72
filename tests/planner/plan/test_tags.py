"""Tags of messages, where a pair of ranks has more messages than tags."""

from __future__ import annotations

from collplan.planner import compile_plan
from collplan.planner.plan.tags import MAX_TAGS
from collplan.planner.verify import verify
from oracle import make_spec


def test_tags_begin_again_where_a_pair_runs_out_and_streams_keep_the_order():
    n = MAX_TAGS + 5
    spec = make_spec(
        "bcast", "linear", 2, count=n, datatype="int8",
        passes=[{"name": "segment", "max_bytes": 1}],
    )  # fmt: skip
    plan = compile_plan(spec, is_proved=False)
    assert plan.tag.max() == MAX_TAGS - 1
    assert len(plan.deps) == 2 * 5
    assert plan.stream.max() == MAX_TAGS - 1
    verify(plan)
