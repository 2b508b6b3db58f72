"""Rounds, bytes and messages of reduce-scatters that keep the order on any number of ranks."""

from __future__ import annotations

from collplan.planner.arrays.logarithms import floor_log2
from looping import SIZES, looped
from schedules import counted, schedule


@looped("p", SIZES)
def test_a_butterfly_takes_two_more_rounds_unless_ranks_are_a_power_of_two(p: int) -> None:
    is_folded = p & (p - 1) > 0
    found = counted("reduce_scatter_block", "butterfly", p, 3)
    assert found.n_rounds == floor_log2(p) + 2 * is_folded
    assert found.bytes_sent_per_rank == 3 * (p if is_folded else p - 1)


def test_a_butterfly_of_five_ranks() -> None:
    """Ranks 0 and 1 fold; of the survivors 0, 2, 3, 4 the first stands for two blocks."""
    found = [sent for sent in schedule("reduce_scatter_block", "butterfly", 5) if sent]
    assert [[ends[:2] for ends in sent] for sent in found] == [
        [(1, 0)],
        [(0, 2), (2, 0), (3, 4), (4, 3)],
        [(0, 3), (2, 4), (3, 0), (4, 2)],
        [(0, 1)],
    ]
