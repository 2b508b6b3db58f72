"""Tests of ways that load links evenly."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.packing.hops import find_hops
from collplan.planner.packing.routing import MOST_HOPS, balanced_ways, prices_of
from linked_machines import boxes, random_fabric, torus


def ways_of(machine, n_passes=4, seed=0):
    n = machine.nodes
    hops = find_hops(machine, np.arange(n), np.array([0, n])).for_chunks(1000)
    origin, dest = np.divmod(np.arange(n * n), n)
    return hops, origin, dest, balanced_ways(hops, origin, dest, n_passes, seed)


@pytest.mark.quick
@pytest.mark.parametrize("machine", [torus(4, 3), boxes(2, 4), *map(random_fabric, range(8))],
                         ids=range(10))  # fmt: skip
def test_ways_lead_from_origin_to_destination(machine):
    hops, origin, dest, (begin, way, load) = ways_of(machine)
    expected = np.zeros(len(load))
    for chunk, (one, other) in enumerate(zip(origin, dest, strict=True)):
        at = one
        for hop in way[begin[chunk] : begin[chunk + 1]]:
            assert hops.source[hop] == at
            at = hops.target[hop]
            for i in range(hops.route_begin[hop], hops.route_begin[hop + 1]):
                expected[hops.route[i]] += hops.busy_ns[hops.route[i]]
        assert at == other
    assert load == pytest.approx(expected)


def test_no_link_of_a_torus_has_much_more_than_the_mean():
    _, _, _, (_, _, load) = ways_of(torus(4, 4))
    assert load[load > 0].max() <= 1.15 * 1000 * 16 * 32 / 64


def test_detours_use_slow_links_of_other_members():
    # From one member of a box to the others, through the slow links of all members.
    machine = boxes(2, 4, fast="8GB/s")
    hops = find_hops(machine, np.arange(8), np.array([0, 8])).for_chunks(1000)
    dest = np.tile(np.arange(4, 8), 4)
    _, _, load = balanced_ways(hops, np.zeros(16, dtype=np.int64), dest, 4, 0)
    assert load.max() <= 5000


def test_ways_may_be_longer_than_most():
    machine = torus(2 * MOST_HOPS + 10, wrap=False)
    n = machine.nodes
    hops = find_hops(machine, np.arange(n), np.array([0, n])).for_chunks(1)
    begin, way, _ = balanced_ways(hops, np.array([0, 1]), np.array([n - 1, 2]), 2, 0)
    assert begin.tolist() == [0, n - 1, n]
    assert hops.source[way].tolist() == [*range(n - 1), 1]


def test_prices_grow_with_loads():
    prices = prices_of(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    assert prices[0] == 0
    assert prices[2] == 1
    assert 0 < prices[1] < 0.01
