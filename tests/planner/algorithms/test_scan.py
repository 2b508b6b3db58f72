"""Rounds and bytes of scans in blocks."""

from __future__ import annotations

import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.prefix_tree import prefix_tree
from collplan.planner.arrays.logarithms import floor_log2
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec
from schedules import counted, schedule


@pytest.mark.many
@pytest.mark.parametrize("kind", ["scan", "exscan"])
@looped("p", SIZES)
def test_a_block_more_takes_three_rounds_more(kind: str, p: int) -> None:
    first = prefix_tree(p).n_rounds if p > 1 else 0
    assert first <= 4 * floor_log2(p)
    for n in (1, 2, 6):
        found = counted(kind, "in_order_tree", p, n, blocks=n)
        most = first + 3 * (n - 1) if p > 1 else 0
        # Blocks follow each other more closely where the tree ends before edges alternate.
        assert most - 2 * (n - 1) <= found.n_rounds <= most
        assert found.n_rounds == most or p < 8
        assert found.bytes_sent_per_rank <= 3 * n


@pytest.mark.parametrize("kind", ["scan", "exscan"])
@looped("p", [1, 2, 3, 5, 8, 12, 17, 33])
def test_blocks_are_combined_in_rank_order(kind: str, p: int) -> None:
    for turn, blocks in enumerate((1, 2, 5, 99, "auto")):
        chosen = {"name": "in_order_tree", "blocks": blocks}
        plan = compile_plan(
            make_spec(
                kind, chosen, p, count=11, in_place=turn % 2 > 0, datatype="uint64", op=AFFINE
            ),
            is_proved=False,
        )
        verify(plan)
        check_result(plan)


def test_a_tree_of_five_ranks() -> None:
    """Ranks 0 and 2 are leaves below 1, which is below 3 as rank 4 is; two blocks."""
    sent = [
        [(0, 1, 0)],
        [(1, 2, 0), (2, 1, 0)],
        [(1, 3, 0)],
        [(0, 1, 1), (3, 4, 0)],
        [(1, 2, 1), (2, 1, 1)],
        [(1, 3, 1)],
        [(3, 4, 1)],
    ]
    for kind in ("scan", "exscan"):
        found = schedule(kind, "in_order_tree", 5, blocks=2)
        assert [sorted(one) for one in found if one] == sent
