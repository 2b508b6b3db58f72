"""Turns of pipelines: which edges carry which block in a round."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.turns import Turns
from looping import looped


@looped("period", [1, 2, 3])
@looped("n_blocks", [0, 1, 4])
def test_edges_carry_all_blocks_one_every_few_rounds(period: int, n_blocks: int) -> None:
    first = np.random.default_rng(period).integers(0, 9, 20)
    for rows in (None, np.array([], dtype=np.int64), np.array([3, 1, 7, 12])):
        turns = Turns(first, period, n_blocks, rows)
        wanted = range(20) if rows is None else sorted(rows.tolist())
        for number in range(9 + period * n_blocks):
            used, blocks = turns.at(number)
            expected = [
                (row, block)
                for row in wanted
                for block in range(n_blocks)
                if first[row] + period * block == number
            ]
            assert list(zip(used.tolist(), blocks.tolist(), strict=True)) == expected
