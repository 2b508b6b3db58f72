"""The tree of scans: what goes over an edge is there before, and edges of a rank take turns."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.prefix_tree import filling_rounds, prefix_tree
from collplan.planner.arrays.logarithms import floor_log2
from looping import looped


@looped("size", [*range(2, 40), 63, 64, 65, 127, 1000])
def test_edges_are_used_when_what_they_carry_is_there(size: int) -> None:
    tree = prefix_tree(size)
    up = dict(zip(tree.child.tolist(), tree.up.tolist(), strict=True))
    down = dict(zip(tree.below.tolist(), tree.down.tolist(), strict=True))
    parent = dict(zip([*tree.child, *tree.below], [*tree.parent, *tree.above], strict=True))
    assert len(parent) == size - 1
    is_inner_first = [node & (node + 1) == 0 for node in range(size)]
    assert [node not in down for node in range(size)] == is_inner_first
    for child, above in parent.items():
        below = [one for one, node in parent.items() if node == child and one in up]
        beside = [one for one, node in parent.items() if node == above and one < above]
        if child in up:
            assert all(up[one] < up[child] for one in below)
        if child in down:
            assert above not in down or down[above] < down[child]
            assert child < above or up[beside[0]] < down[child]
            assert down[child] > max((up[one] for one in below if one < child), default=-1)
            assert up.get(child, 0) <= down[child], "vectors in place are sent before"
    for ends in ((tree.child, tree.up), (tree.below, tree.down)):
        for one in range(size):
            used = [t % 3 for edge, t in zip(*(end.tolist() for end in ends), strict=True)
                    if one in (edge, parent[edge])]  # fmt: skip
            assert len(used) == len(set(used)), "edges of a rank are used in turns"
    assert tree.n_rounds == 1 + max(*up.values(), *down.values(), -1)
    assert tree.n_rounds <= 4 * floor_log2(size)


def test_filling_takes_a_third_of_the_rounds_of_a_block() -> None:
    assert filling_rounds(1) == 0
    assert filling_rounds(64) == 7
