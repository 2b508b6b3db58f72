"""Tests of the hops between the ranks of groups."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.packing.hops import ALL_PAIRS, find_hops
from linked_machines import boxes, machine_on, torus


def pairs_of(machine, ranks, indptr):
    table = find_hops(machine, np.array(ranks), np.array(indptr))
    return sorted(zip(table.source.tolist(), table.target.tolist(), strict=True)), table


def test_hops_of_a_torus_are_its_links():
    pairs, _ = pairs_of(torus(4, 3), range(12), [0, 12])
    assert len(pairs) == 12 * 4
    assert (0, 1) in pairs
    assert (0, 2) not in pairs


@pytest.mark.parametrize("wrap", [True, False])
def test_large_groups_have_the_same_hops(wrap):
    dimensions = 12, 11
    assert np.prod(dimensions) > ALL_PAIRS
    pairs, _ = pairs_of(torus(*dimensions, wrap=wrap), range(132), [0, 132])
    n_links = 132 * 4 if wrap else 2 * (11 * 11 + 12 * 10)
    assert len(pairs) == n_links


def test_ranks_that_are_not_in_the_group_are_passed():
    # Every other host of a ring: messages between neighbors of the group pass one host.
    pairs, table = pairs_of(torus(8), [0, 2, 4, 6], [0, 4])
    assert pairs == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (2, 3), (3, 0), (3, 2)]
    assert np.diff(table.route_begin).tolist() == [4] * 8  # two links, and two adapters


def test_groups_have_no_hops_between_them():
    pairs, table = pairs_of(torus(4, 2), range(8), [0, 3, 8])
    assert all((one < 3) == (other < 3) for one, other in pairs)
    assert table.group_of.tolist() == [0] * 3 + [1] * 5


def test_all_pairs_behind_switches_are_hops():
    pairs, _ = pairs_of(boxes(2, 2), range(4), [0, 4])
    assert len(pairs) == 12


def test_ranks_on_one_node_have_no_hops():
    machine = machine_on({"kind": "torus", "dimensions": [2], "bandwidth": "1GB/s"},
                         ranks_per_node=2)  # fmt: skip
    assert find_hops(machine, np.arange(4), np.array([0, 4])) is None
    assert find_hops(machine, np.array([0, 2, 1, 3]), np.array([0, 2, 4])) is not None


def test_reversed_hops_occupy_the_same_links():
    _, table = pairs_of(boxes(2, 2), range(4), [0, 4])
    turned = table.reversed()
    for hop in range(len(table.source)):
        there = np.flatnonzero(
            (turned.source == table.target[hop]) & (turned.target == table.source[hop])
        )
        assert len(there) == 1
        one, other = (
            t.route[t.route_begin[i] : t.route_begin[i + 1]].tolist()
            for t, i in ((table, hop), (turned, there[0]))
        )
        assert one == other
    assert (np.diff(turned.source) >= 0).all()


def test_one_hop_per_link_makes_rings_behind_switches():
    _, table = pairs_of(boxes(2, 3), range(6), [0, 6])
    sparse = table.one_per_link()
    pairs = set(zip(sparse.source.tolist(), sparse.target.tolist(), strict=True))
    rings = {(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)}
    assert pairs == rings | {(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)}
    first = sparse.route[sparse.route_begin[:-1] + 1]
    last = sparse.route[sparse.route_begin[1:] - 2]
    assert len(set(first.tolist())) == len(set(last.tolist())) == 12


def test_one_hop_per_link_of_a_tree_is_a_ring():
    tree = machine_on({"kind": "fat_tree", "down": [3, 2], "bandwidth": "1GB/s"})
    _, table = pairs_of(tree, range(6), [0, 6])
    sparse = table.one_per_link()
    assert sparse.target.tolist() == [1, 2, 3, 4, 5, 0]


def test_hops_of_direct_links_stay():
    _, table = pairs_of(torus(4, 3), range(12), [0, 12])
    assert table.one_per_link() is None


def test_lanes_limit_hops():
    network = {"network": {"L_ns": 5, "o_ns": 7, "g_ns": 3, "G_ns_per_byte": 2}}
    topology = {"kind": "torus", "dimensions": [2], "bandwidth": "1GB/s", "latency_ns": 11}
    machine = machine_on(topology, network={**network, "topology": topology})
    hops = find_hops(machine, np.arange(2), np.array([0, 2])).for_chunks(100)
    assert hops.flight_ns.tolist() == [200 + 11 + 5 + 14] * 2
    assert hops.cycle_ns.tolist() == [200 + 11] * 2
    assert find_hops(machine, np.arange(2), np.array([0, 2])).for_chunks(0).busy_ns.max() == 7
