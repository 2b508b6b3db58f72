"""Foldings, small factors, hops and schedules on circulant graphs, and trees by size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from collplan.planner.algorithms.building_blocks.bine import bine_tree, butterfly, rho, ways
from collplan.planner.algorithms.building_blocks.block_schedule import (
    baseblock,
    block_schedule,
    doubling_skips,
    phases,
)
from collplan.planner.algorithms.building_blocks.factors import (
    factors,
    greatest_product,
    mixed_factors,
)
from collplan.planner.algorithms.building_blocks.folding import fold, owned
from collplan.planner.algorithms.building_blocks.spreading import (
    Hop,
    bruck_hops,
    circulant_hops,
    pat_hops,
    sparbit_hops,
)
from collplan.planner.algorithms.building_blocks.trees import inner_heads, size_tree
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from looping import looped

SIZES = range(1, 41)


@looped("size", SIZES)
def test_foldings_keep_a_power_of_two_and_the_order(size: int) -> None:
    for survivor in range(size):
        folding = fold(size, survivor)
        assert folding.n_survivors == 2 ** floor_log2(size)
        assert survivor in folding.survivors
        assert sorted([*folding.survivors, *folding.folded]) == list(range(size))
        assert np.all(np.diff(folding.survivors) > 0)
        # Each host stands for itself and a neighbor, so operands stay in rank order.
        assert np.all(abs(folding.hosts - folding.folded) == 1)


@pytest.mark.quick
@pytest.mark.parametrize("largest", [2, 3, 4, 10])
def test_products_of_small_factors_are_the_greatest_there_are(largest: int) -> None:
    for size in SIZES:
        found = greatest_product(size, largest)
        assert max(found, default=1) <= largest
        product = math.prod(found)
        assert size < 2 * product <= 2 * size
        assert all(factors(between, largest) is None for between in range(product + 1, size + 1))
        folding = fold(size, n_survivors=product)
        assert folding.n_survivors == product
        assert sorted([*folding.survivors, *folding.folded]) == list(range(size))


@pytest.mark.quick
@pytest.mark.parametrize("largest", [2, 3, 4, 10])
def test_greater_factors_are_primes(largest: int) -> None:
    for size in [*SIZES, 1009, 1152]:
        found = mixed_factors(size, largest)
        assert math.prod(found) == size
        small = [factor for factor in found if factor <= largest]
        assert list(found[: len(small)]) == sorted(small, reverse=True)
        for factor in found[len(small) :]:
            assert all(factor % divisor for divisor in range(2, factor))


@looped("size", [*SIZES, 64, 100, 1000])
def test_bine_trees_reach_all_over_short_distances(size: int) -> None:
    held, distance, binomial = {0}, 0, 0
    for level, edges in enumerate(bine_tree(size)):
        below: list[int] = []
        for parent, child, first, n in zip(*(column.tolist() for column in edges), strict=True):
            assert parent in held
            interval = [(first + i) % size for i in range(n)]
            assert child in interval
            assert parent not in interval
            below += interval
            distance += min((child - parent) % size, (parent - child) % size)
        assert len(below) == len(set(below)), "subtrees share no position"
        assert not held & set(below)
        held |= set(edges.child.tolist())
        span = 1 << (ceil_log2(size) - 1 - level)
        binomial += len(range(0, size - span, 2 * span)) * min(span, size - span)
    assert held == set(range(size))
    assert distance <= binomial
    if size in (64, 1000):
        assert distance == {64: 135, 1000: 3471}[size]


@looped("size", [2, 4, 6, 8, 12, 14, 34, 40, 64, 500, 1152])
def test_butterflies_bring_every_block_once(size: int) -> None:
    assert_every_block_comes_once(butterfly(size), size)


@looped("size", [*SIZES, 64, 100, 1000])
def test_hops_of_trees_bring_every_block_once(size: int) -> None:
    assert_every_block_comes_once(sparbit_hops(size), size)
    assert_every_block_comes_once(circulant_hops(size), size)
    assert len(circulant_hops(size)) == ceil_log2(size)
    for radix in (2, 3, 7, 2000):
        assert_every_block_comes_once(bruck_hops(size, radix), size)
    for aggregation in (1, 2, 5, 8, 1 << 20):
        hops = pat_hops(size, aggregation)
        assert_every_block_comes_once(hops, size)
        assert all(len(hop.sent) <= aggregation for hop in hops)


def assert_every_block_comes_once(hops: Sequence[Hop], size: int) -> None:
    held = {0}
    for hop in hops:
        came = set(hop.received(size).tolist())
        assert set(hop.sent.tolist()) <= held
        assert not held & came
        assert len(came) == len(hop.sent)
        held |= came
    assert len(held) == size


@looped("size", [2, 4, 6, 8, 12, 16, 34, 40])
def test_ways_lead_to_all_ranks_in_the_fewest_steps(size: int) -> None:
    found = ways(size)
    for distance, way in enumerate(found):
        assert sum((-1) ** i * rho(k) for i, k in enumerate(way)) % size == distance
        assert list(way) == sorted(way)
    assert sum(map(len, found)) <= sum(distance.bit_count() for distance in range(size))
    assert size & (size - 1) or sum(map(len, found)) == size // 2 * ceil_log2(size)


@looped("q", [1, 2, 4, 8, 16])
def test_survivors_own_all_chunks_once_at_every_level(q: int) -> None:
    for level in range(floor_log2(q) + 1):
        first, n = owned(np.arange(q), q, level)
        assert n == q >> level
        chunks = [c for begin in first.tolist() for c in range(begin, begin + n)]
        assert sorted(chunks) == sorted(list(range(q)) * n)


LARGE = (129, 131, 133, 146, 193, 255, 256, 257, 290, 300, 511, 513, 599, 600)


@looped("size", [*range(2, 120), *LARGE])
def test_schedules_bring_every_block_once_and_before_it_is_sent(size: int) -> None:
    """The conditions of correctness; of 2 to 600 ranks all were checked, of which these stay."""
    q, skip = ceil_log2(size), doubling_skips(size)
    received, sent = block_schedule(size)
    base = np.array([baseblock.py_func(rank, skip) for rank in range(size)])
    # In a phase a rank receives its baseblock, which is new, and all but that of the one before.
    wanted = np.tile(np.arange(-q, 0), (size, 1))
    wanted[1:] += q * (wanted[1:] == base[1:, None] - q)
    assert np.array_equal(np.sort(received, axis=1), np.sort(wanted, axis=1))
    assert np.array_equal(sent[0], np.arange(q)), "the root sends blocks in order"
    for k in range(q):
        is_old = sent[1:, k] == base[1:] - q
        came = (received[1:, :k] == sent[1:, k : k + 1]).any(axis=1)
        assert np.all(is_old | came), "ranks send blocks that they have"


@looped("size", [2, 3, 8, 17, 33, 40])
@looped("n_blocks", [1, 2, 5, 9])
def test_all_blocks_reach_all_ranks_in_the_fewest_rounds(size: int, n_blocks: int) -> None:
    skip, (_, sent) = doubling_skips(size), block_schedule(size)
    held = np.zeros((size, n_blocks), dtype=bool)
    held[0] = True
    rounds = list(phases(size, n_blocks))
    assert len(rounds) == n_blocks - 1 + ceil_log2(size)
    for k, more in rounds:
        block = np.minimum(sent[:, k] + more, n_blocks - 1)
        source = np.flatnonzero((block >= 0) & ((np.arange(size) + skip[k]) % size != 0))
        dest = (source + skip[k]) % size
        assert held[source, block[source]].all()
        assert not held[dest, block[source]].any(), "no block comes twice"
        held[dest, block[source]] = True
    assert held.all()


@looped("size", [1, 2, 3, 7, 8, 13, 40])
def test_trees_by_size_send_the_lighter_run_to_the_heavier(size: int) -> None:
    rng = np.random.default_rng(size)
    for root in {0, size // 2, size - 1}:
        counts = rng.integers(0, 50, size) ** 2
        rounds = size_tree(counts, root)
        assert len(rounds) == ceil_log2(size)
        held = [{rank} for rank in range(size)]
        for merges in rounds:
            for source, dest, first, n in zip(*merges, strict=True):
                assert held[source] == set(range(first, first + n)), "a run of neighbors"
                lighter, heavier = (counts[sorted(held[end])].sum() for end in (source, dest))
                assert dest == root or lighter <= heavier
                held[dest] |= held[source]
        assert held[root] == set(range(size))
        heads = {int(rank) for merges in rounds for rank in merges.dest}
        assert set(inner_heads(rounds, root).tolist()) == heads - {root}
