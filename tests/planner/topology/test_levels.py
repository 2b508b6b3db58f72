"""Levels of machines: places of ranks by group, switch and node, and boxes of a torus."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from collplan.planner.topology.levels import nearness, rank_places
from collplan.specs import Machine


def machine(topology, **fields):
    return Machine.model_validate({"network": {"topology": topology}, **fields})


DRAGONFLY = {"kind": "dragonfly", "groups": 3, "routers": 2, "hosts": 2}


def test_places_follow_the_hosts_of_nodes_and_the_nodes_of_ranks():
    spread = machine(
        DRAGONFLY, nodes=3, ranks_per_node=[1, 2, 2], numa_domains=2, placement=[11, 0, 6]
    )
    assert rank_places(spread, "node").tolist() == [0, 1, 1, 2, 2]
    assert rank_places(spread, "numa").tolist() == [0, 2, 3, 4, 5]
    assert rank_places(spread, "switch").tolist() == [5, 0, 0, 3, 3]
    assert rank_places(spread, "group").tolist() == [2, 0, 0, 1, 1]


@pytest.mark.quick
@pytest.mark.parametrize(
    "topology",
    [
        DRAGONFLY,
        {"kind": "fat_tree", "down": [2, 2, 3]},
        {"kind": "torus", "dimensions": [3, 2, 2]},
        {"kind": "torus", "dimensions": [12], "wrap": False},
    ],
    ids=str,
)
def test_levels_lie_within_those_before_them_and_end_with_nodes(topology):
    shuffled = machine(topology, nodes=9, ranks_per_node=2, placement={"random": 3})
    levels = nearness(shuffled)
    assert levels.shape[1] == 18
    for coarse, fine in pairwise(levels):
        pairs = {*zip(fine.tolist(), coarse.tolist(), strict=True)}
        assert len(pairs) == len(set(fine.tolist()))
    assert len(np.unique(levels[-1])) == 9


def test_boxes_of_a_torus_are_halved_along_their_longest_side():
    levels = nearness(machine({"kind": "torus", "dimensions": [2, 8]}, nodes=16))
    sizes = [np.unique(np.unique(level, return_counts=True)[1]).tolist() for level in levels]
    assert sizes == [[8], [4], [2], [1]]
    x, y = np.arange(16) % 2, np.arange(16) // 2
    for level, sides in zip(levels, ((2, 4), (2, 2), (1, 2), (1, 1)), strict=True):
        for box in np.unique(level):
            there = level == box
            assert (np.ptp(x[there]) + 1, np.ptp(y[there]) + 1) == sides
