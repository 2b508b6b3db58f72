"""Loads of links by turn, and times of rounds that follow each other."""

from __future__ import annotations

import numpy as np

from collplan.planner.topology.link_loads import LinkLoads


def test_the_busiest_link_of_every_turn_and_of_all():
    loads = LinkLoads(np.array([0, 0, 1, 2]), np.array([3, 5, 3, 5]), np.ones(4), np.zeros(3))
    turn, n_bytes = np.array([0, 1, 1]), np.array([10, 20, 40])
    assert loads.most_ns(turn, 2, n_bytes).tolist() == [10.0, 40.0, 50.0]
    empty = LinkLoads(*(np.zeros(0, dtype=np.int64),) * 2, *(np.zeros(0),) * 2)
    assert empty.most_ns(turn, 2, n_bytes).tolist() == [0.0, 0.0, 0.0]


def test_a_rank_goes_on_when_its_own_messages_have_passed():
    """Rank 1 gets 40 bytes over a link of its own; ranks 2 to 5 share one with 10 and 20."""
    turn, n_bytes = np.array([0, 0, 0, 1, 1]), np.array([40, 10, 20, 5, 7])
    message, link = np.arange(5), np.array([0, 1, 1, 1, 2])
    loads = LinkLoads(message, link, np.ones(5), np.zeros(5))
    ends = np.array([0, 2, 4, 3, 1]), np.array([1, 3, 5, 5, 6])
    assert loads.chain_ns(turn, n_bytes, ends) == 47.0
    # In a third round, of 3 and 5 that were done at 35.
    later = np.append(turn, 2), np.append(n_bytes, 100)
    longer = LinkLoads(np.arange(6), np.append(link, 1), np.ones(6), np.zeros(6))
    assert longer.chain_ns(*later, (np.append(ends[0], 5), np.append(ends[1], 3))) == 135.0


def test_messages_within_a_node_take_no_time_on_links():
    none = np.zeros(0, dtype=np.int64)
    loads = LinkLoads(none, none, np.zeros(0), np.zeros(2))
    zero = np.zeros(2, dtype=np.int64)
    assert loads.chain_ns(zero, np.array([5, 6]), (zero, zero + 1)) == 0.0
    assert loads.chain_ns(none, none, (none, none)) == 0.0
