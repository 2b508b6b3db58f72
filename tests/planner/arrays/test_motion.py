"""Motions: permutations by blocks, and how they follow each other."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.arrays.motion import Motion

MOTIONS = [Motion("shift", 12, 3), Motion("shift", 5, 1), Motion("xor", 16, 4), Motion("xor", 8, 1)]


@pytest.mark.quick
@pytest.mark.parametrize("motion", MOTIONS, ids=str)
def test_a_motion_is_a_permutation_that_keeps_places_in_blocks(motion: Motion) -> None:
    everything = np.arange(motion.size)
    for block in range(motion.n_blocks):
        moved = motion.move(everything, block)
        assert sorted(moved.tolist()) == everything.tolist()
        assert (moved % motion.step == everything % motion.step).all()
        assert motion.move(0, block) == block * motion.step


@pytest.mark.quick
@pytest.mark.parametrize("motion", MOTIONS, ids=str)
def test_motions_follow_each_other(motion: Motion) -> None:
    for one in range(motion.n_blocks):
        for other in range(motion.n_blocks):
            both = motion.move_block(one, other)
            assert motion.move(motion.move(1, one), other) == motion.move(1, both)
            assert motion.block_to(one, both) == other


@pytest.mark.quick
@pytest.mark.parametrize("motion", MOTIONS, ids=str)
def test_generators_reach_every_block(motion: Motion) -> None:
    reached, fresh = {0}, {0}
    while fresh:
        fresh = {motion.move_block(one, by) for one in fresh for by in motion.generators} - reached
        reached |= fresh
    assert reached == set(range(motion.n_blocks))
