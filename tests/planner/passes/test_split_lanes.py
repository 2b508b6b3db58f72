"""Hierarchical decompositions split over more leaders, one by one, up to all ranks of a node."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import COLUMNS
from looping import looped
from oracle import REGULAR, make_spec

KINDS = [kind for kind in REGULAR if kind != "barrier"]


SPLIT = {"nodes": 3, "ranks_per_node": 4, "lanes": 2}


def compiled_with(kind, decomposition, passes=()):
    spec = make_spec(
        kind, "auto", 0, SPLIT, decomposition=decomposition, passes=passes, count=24, root=5
    )
    return compile_plan(spec)


def assert_same_plan(one, other):
    """Nothing but the specs differs."""
    for name in (*COLUMNS, "buffer_sizes"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.phases == other.phases
    assert measure(one.replace(spec=None)) == measure(other.replace(spec=None))


@pytest.mark.many
@looped("kind", KINDS)
@looped("leaders", [1, 2, 3, 4])
def test_lanes_are_split_one_by_one(kind, leaders):
    """From one leader, which is hierarchical, to all ranks, which is full-lane."""
    by_pass = compiled_with(kind, "hierarchical", [{"name": "split_lanes", "leaders": leaders}])
    by_name = compiled_with(kind, {"name": "multi_leader", "leaders": leaders})
    assert_same_plan(by_pass, by_name)
    if leaders in (1, 4):
        name = "hierarchical" if leaders == 1 else "full_lane"
        assert_same_plan(by_pass, compiled_with(kind, name))


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["bcast", "reduce", "allreduce"])
def test_every_lane_carries_its_leaders_shares(kind):
    """Of m leaders the fullest lane has ⌈m / lanes⌉, each with a share of c / m."""
    lane_bytes, queue_pairs = {}, {}
    for leaders in (1, 2, 3, 4):
        counted = measure(compiled_with(kind, {"name": "multi_leader", "leaders": leaders}))
        lane_bytes[leaders], queue_pairs[leaders] = counted.lane_bytes, counted.queue_pairs_per_node
    alone = lane_bytes[1]
    assert lane_bytes == {1: alone, 2: alone // 2, 3: 2 * alone // 3, 4: alone // 2}
    assert queue_pairs == {m: m * queue_pairs[1] for m in lane_bytes}


@pytest.mark.parametrize("kind", ["gather", "scatter", "allgather", "alltoall"])
def test_lanes_carry_blocks_evenly(kind):
    """Leaders that serve equally many ranks carry equally much; the node as a whole the same."""
    counted = {
        leaders: measure(compiled_with(kind, {"name": "multi_leader", "leaders": leaders}))
        for leaders in (1, 2, 4)
    }
    for metrics in counted.values():
        assert metrics.bytes_sent_per_node == counted[1].bytes_sent_per_node
    assert [metrics.lane_bytes for metrics in counted.values()] == [
        counted[1].lane_bytes, counted[1].lane_bytes // 2, counted[1].lane_bytes // 2
    ]  # fmt: skip
