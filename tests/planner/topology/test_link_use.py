"""Bytes over the links of a topology, against routes followed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.compiling import compile_spec
from collplan.planner.plan.plan import Op
from collplan.planner.topology import fabric_of
from collplan.planner.topology.link_use import link_use
from collplan.planner.topology.links import GLOBAL
from collplan.specs import parse_spec

TOPOLOGIES: list[dict[str, Any]] = [
    {"kind": "fat_tree", "down": [2, 4], "oversubscription": 2},
    {"kind": "dragonfly", "groups": 2, "routers": 2, "hosts": 2, "routing": "valiant"},
    {"kind": "torus", "dimensions": [2, 4], "lanes": "shared"},
]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_every_message_is_on_every_link_of_its_route(topology):
    spec = parse_spec(
        {
            "machine": {
                "nodes": 6, "ranks_per_node": 2, "lanes": 2, "network": {"topology": topology}
            },
            "collective": {"kind": "allgather", "count": 5, "datatype": "int32"},
            "algorithms": "bruck",
        }
    )  # fmt: skip
    plan, fabric = compile_spec(spec), fabric_of(spec.machine)
    use = link_use(plan)
    assert fabric is not None
    assert use is not None
    expected, crossing = np.zeros(fabric.n_links, dtype=np.int64), 0
    for task in plan.tasks():
        if task.op is not Op.SEND or task.rank // 2 == task.peer // 2:
            continue
        n_bytes = 4 * sum(
            extent.count * extent.pattern[1] * extent.pattern[3] for extent in task.reads
        )
        ends = (np.array([task.rank // 2]), np.array([task.peer // 2]))
        _, links = fabric.node_routes(*ends, np.array([task.lane]))
        expected[links] += n_bytes
        crossing += n_bytes * bool((fabric.link_class[links] == GLOBAL).any())
    assert np.array_equal(use.n_bytes, expected)
    assert use.global_bytes == crossing
    times = expected / fabric.bandwidth
    assert use.busiest_s == times.max() == times[use.busiest]


def test_without_a_topology_there_are_no_links():
    spec = parse_spec({"machine": {"nodes": 2}, "collective": {"kind": "bcast", "count": 1}})
    assert link_use(compile_spec(spec)) is None
