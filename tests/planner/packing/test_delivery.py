"""Tests of the delivery of chunks over given ways."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.packing.delivery import deliver
from collplan.planner.packing.hops import find_hops
from collplan.planner.packing.routing import balanced_ways
from linked_machines import boxes, random_fabric, torus


@pytest.mark.quick
@pytest.mark.parametrize("machine", [torus(1), torus(2), torus(4, 3), boxes(2, 3),
                                     *map(random_fabric, range(12))], ids=range(16))  # fmt: skip
def test_chunks_move_hop_by_hop_over_free_links(machine):
    n = machine.nodes
    hops = find_hops(machine, np.arange(n), np.array([0, n])).for_chunks(1000)
    origin, dest = np.divmod(np.arange(n * n), n)
    begin, way, load = balanced_ways(hops, origin, dest, 2, 0)
    messages, ns = deliver(hops, begin, way)
    assert len(messages.hop) == len(way)
    assert ns >= load.max(initial=0.0)
    place, ready = begin[:-1].copy(), np.zeros(n * n)
    free = np.zeros(len(hops.busy_ns))
    for hop, chunk, start in zip(*messages, strict=True):
        assert way[place[chunk]] == hop
        assert ready[chunk] <= start * (1 + 1e-9)
        ready[chunk] = start + hops.flight_ns[hop]
        place[chunk] += 1
        links = hops.route[hops.route_begin[hop] : hops.route_begin[hop + 1]]
        assert (free[links] <= start * (1 + 1e-9)).all()
        free[links] = start + hops.busy_ns[links]
    assert (place == begin[1:]).all()
    assert ready.max(initial=0.0) == pytest.approx(ns)
