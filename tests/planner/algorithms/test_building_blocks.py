"""Foldings to powers of two, and skips on circulant graphs, for every small number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.algorithms.building_blocks.circulant import skips
from collplan.planner.algorithms.building_blocks.folding import fold, owned
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2

SIZES = range(1, 41)


@pytest.mark.parametrize("size", SIZES)
def test_foldings_keep_a_power_of_two_and_the_order(size: int) -> None:
    for survivor in range(size):
        folding = fold(size, survivor)
        assert folding.n_survivors == 2 ** floor_log2(size)
        assert survivor in folding.survivors
        assert sorted([*folding.survivors, *folding.folded]) == list(range(size))
        assert np.all(np.diff(folding.survivors) > 0)
        # Each host stands for itself and a neighbor, so operands stay in rank order.
        assert np.all(abs(folding.hosts - folding.folded) == 1)


@pytest.mark.parametrize("q", [1, 2, 4, 8, 16])
def test_survivors_own_all_chunks_once_at_every_level(q: int) -> None:
    for level in range(floor_log2(q) + 1):
        first, n = owned(np.arange(q), q, level)
        assert n == q >> level
        chunks = [c for begin in first.tolist() for c in range(begin, begin + n)]
        assert sorted(chunks) == sorted(list(range(q)) * n)


@pytest.mark.parametrize("size", SIZES)
def test_skips_move_every_block_but_the_own_in_the_fewest_rounds(size: int) -> None:
    rounds = skips(size)
    assert len(rounds) == ceil_log2(size)
    assert sum(n for _, n in rounds) == size - 1
    assert all(n <= skip for skip, n in rounds)
