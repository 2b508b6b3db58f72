"""Blocks that edges send between places."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from collplan.planner.collective.bounds import crossing, lower_bounds, most_partners
from collplan.planner.collective.edges import blocks_between
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.metrics import measure
from collplan.specs import NeighborAllgather, NeighborAlltoall, PlanSpec
from neighborhoods import specs
from tiers import examples

STAR = [[0, 1], [0, 2], [0, 3], [0, 3], [0, 0]]


def test_a_block_for_several_ranks_crosses_a_border_once() -> None:
    nodes = np.array([0, 1, 1, 2])
    layout = NeighborAllgather(graph=STAR, count=5).edge_layout(4)
    assert layout is not None
    blocks = blocks_between(layout, nodes)
    assert blocks.source.tolist() == [0, 0]
    assert blocks.dest.tolist() == [1, 2]
    assert blocks.is_first.tolist() == [True, False]
    assert crossing(NeighborAllgather(graph=STAR, count=5), nodes).into == [0, 5, 5]
    assert crossing(NeighborAllgather(graph=STAR, count=5), nodes).out == [5, 0, 0]
    assert crossing(NeighborAlltoall(graph=STAR, count=5), nodes).into == [0, 10, 10]
    assert crossing(NeighborAlltoall(graph=STAR, count=5), nodes).out == [20, 0, 0]


def test_partners_are_neighbors_on_other_places() -> None:
    collective = NeighborAlltoall(graph=STAR, count=5)
    assert most_partners(collective, np.arange(4)) == 3
    assert most_partners(collective, np.array([0, 1, 1, 1])) == 1
    assert most_partners(collective.replace(count=0), np.arange(4)) == 0


@settings(max_examples=examples(60), deadline=None)
@given(specs())
def test_no_plan_beats_a_bound(spec: PlanSpec) -> None:
    bounds, plan = lower_bounds(spec), measure(compile_plan(spec, is_proved=False))
    names = ("n_rounds", "bytes_sent_per_node", "bytes_received_per_node", "lane_bytes")
    for name in names:
        assert getattr(plan, name) >= getattr(bounds, name), name
