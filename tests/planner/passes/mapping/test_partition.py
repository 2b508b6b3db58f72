"""Partitions of positions: the least cut where all are tried, near it where they are not."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.passes.mapping.partition import (
    FREE,
    MOST_PARTITIONS,
    PositionTraffic,
    count_partitions,
    partition,
)


def hypercube(size, near_first):
    """Return exchanges at all distances that are powers of two, bytes doubling or halving."""
    me, found = np.arange(size), []
    n_rounds = size.bit_length() - 1
    for k in range(n_rounds):
        n_bytes = 1 << (n_rounds - k if near_first else k)
        found.append((me, me ^ (1 << k), np.full(size, n_bytes)))
    return PositionTraffic.of(*map(np.concatenate, zip(*found, strict=True)), size)


def free(size):
    return np.full(size, FREE)


@st.composite
def cases(draw):
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    n = sum(sizes)
    ends = st.integers(0, n - 1)
    messages = draw(st.lists(st.tuples(ends, ends, st.integers(0, 9)), max_size=3 * n))
    position = draw(ends)
    part = draw(st.sampled_from([FREE, *range(len(sizes))]))
    return sizes, messages, position, part


@given(cases())
def test_small_cases_are_exact(case):
    sizes, messages, position, part = case
    n = sum(sizes)
    source, dest, n_bytes = np.array(messages, dtype=np.int64).reshape(-1, 3).T
    traffic = PositionTraffic.of(source, dest, n_bytes, n)
    bound = free(n)
    bound[position] = part
    found = partition(traffic, sizes, bound)
    assert np.bincount(found, minlength=len(sizes)).tolist() == sizes
    assert part in (FREE, found[position])
    every = np.repeat(np.arange(len(sizes)), sizes)
    cuts = [
        sum(b for s, d, b in messages if labels[s] != labels[d])
        for labels in set(permutations(every.tolist()))
        if part in (FREE, labels[position])
    ]
    assert traffic.cut(found) == min(cuts)


def test_traffic_adds_both_directions_and_leaves_out_what_stays():
    traffic = PositionTraffic.of(
        np.array([0, 1, 2, 2]), np.array([1, 0, 2, 0]), np.array([3, 4, 9, 5]), 3
    )
    assert traffic.other.tolist() == [1, 2, 0, 0]
    assert traffic.n_bytes.tolist() == [7, 5, 7, 5]
    assert traffic.cut(np.array([0, 1, 0])) == 7
    assert traffic.among(np.array([2, 0])).cut(np.array([0, 1])) == 5


@pytest.mark.quick
@pytest.mark.parametrize("near_first", [True, False])
@pytest.mark.parametrize(("size", "n_parts"), [(64, 2), (64, 8), (256, 16)])
def test_halves_of_hypercubes_cut_the_dimensions_of_fewest_bytes(size, n_parts, near_first):
    sizes = [size // n_parts] * n_parts
    assert count_partitions(sizes) > MOST_PARTITIONS
    traffic = hypercube(size, near_first)
    found = partition(traffic, sizes, free(size))
    assert np.bincount(found).tolist() == sizes
    n_cut = n_parts.bit_length() - 1
    least = [1 << (k + near_first) for k in range(n_cut)]
    # Each of the dimensions cut has size/2 pairs, which send both ways.
    assert traffic.cut(found) == size * sum(least)


def test_uneven_parts_of_a_shuffled_ring_are_its_runs():
    order = np.random.default_rng(1).permutation(60)
    ring = PositionTraffic.of(order, np.roll(order, 1), np.full(60, 8), 60)
    sizes = [7, 19, 13, 21]
    found = partition(ring, sizes, free(60))
    assert np.bincount(found).tolist() == sizes
    assert ring.cut(found) == 4 * 8


def test_a_bound_position_stays_in_its_part_where_not_all_ways_are_tried():
    for part in (0, 1, 2):
        bound = free(64)
        bound[[5, 40]] = part
        found = partition(hypercube(64, True), [16, 16, 32], bound)
        assert found[[5, 40]].tolist() == [part, part]
        assert np.bincount(found).tolist() == [16, 16, 32]


def test_is_the_same_every_time():
    one, other = (partition(hypercube(128, False), [50, 78], free(128)) for _ in range(2))
    assert np.array_equal(one, other)
