"""Two trees: their form, the rounds of their edges, and what plans count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.two_trees import (
    Turns,
    colors,
    in_order_parents,
    two_trees,
)
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from collplan.planner.metrics import measure
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec
from schedules import counted, schedule

KINDS = ("bcast", "reduce", "allreduce")


def children(size: int) -> Iterator[tuple[int, int]]:
    """Yield (parent, child) of the in-order tree by the rule of the children.

    A node of height h has the child 2^(h - 1) before it, and the farthest of those a lower
    power of two after it.
    """
    for node in range(1, size + 1):
        half = (node & -node) // 2
        if half:
            yield node, node - half
        while half and node + half > size:
            half //= 2
        if half:
            yield node, node + half


@looped("size", range(1, 130))
def test_in_order_trees_have_the_children_of_the_rule(size: int) -> None:
    parents = in_order_parents(size).tolist()
    edges = sorted((parent, child) for child, parent in enumerate(parents, 1) if parent)
    assert edges == sorted(children(size))
    assert parents[(1 << floor_log2(size)) - 1] == 0


@looped("p", range(2, 130))
def test_no_rank_is_inner_in_both_trees_and_subtrees_are_intervals(p: int) -> None:
    trees = two_trees(p)
    inner = [set(parents.tolist()) - {0} for parents in trees]
    assert not inner[0] & inner[1]
    for row in trees.tolist():
        parents = dict(enumerate(row, 1))
        assert set(parents) == set(range(1, p))
        assert row.count(0) == 1
        subtree = {node: {node} for node in range(p)}
        # Parents have the larger lowest bits, so that children of few come first.
        for node in sorted(parents, key=lambda node: -depth(parents, node)):
            subtree[parents[node]] |= subtree[node]
        assert all(max(nodes) - min(nodes) + 1 == len(nodes) for nodes in subtree.values())


def depth(parents: dict[int, int], node: int) -> int:
    return 1 + depth(parents, parents[node]) if node else 0


@looped("p", [*range(1, 130), 1000, 4095, 4096])
def test_edges_of_one_rank_differ_in_color_as_far_as_there_are_two(p: int) -> None:
    trees = two_trees(p)
    found = colors(trees)
    assert found.shape == trees.shape
    assert (found[0] + found[1] == 1).all()
    n_edges, n_ones = (
        np.bincount(trees.ravel(), weights, minlength=p) for weights in (None, found.ravel())
    )
    assert set(n_edges.tolist()) <= {0, 1, 2}
    assert (n_ones[n_edges == 2] == 1).all()


@pytest.mark.quick
@looped("p", SIZES[1:])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_edges_carry_a_block_of_their_tree_in_every_other_round(n: int, p: int) -> None:
    trees = two_trees(p)
    rounds = schedule("bcast", "two_tree", p, blocks=n)
    first: dict[tuple[int, int], int] = {}
    for number, sent in enumerate(rounds):
        for source, dest, block in sent:
            tree, turn = block % 2, block // 2
            assert source == trees[tree, dest - 1]
            begin = first.setdefault((tree, dest), number - 2 * turn)
            assert number == begin + 2 * turn
            assert begin > first.get((tree, source), -1)
    # Every rank gets every block once, in n rounds and those that fill the pipeline.
    got = Counter((dest, block) for sent in rounds for _, dest, block in sent)
    assert got == Counter((rank, block) for rank in range(1, p) for block in range(n))
    assert n + ceil_log2(p) - 1 <= len(rounds) <= n + 2 * ceil_log2(p)
    turned = [sorted((b, a, n - 1 - block) for a, b, block in sent) for sent in reversed(rounds)]
    assert schedule("reduce", "two_tree", p, blocks=n) == turned
    assert schedule("allreduce", "two_tree", p, blocks=n) == turned + rounds


@pytest.mark.many
@looped("p", SIZES)
def test_rounds_and_bytes_are_those_of_the_formulas(p: int) -> None:
    for n in (1, 2, 3, 8):
        n_rounds = len(schedule("bcast", "two_tree", p, blocks=n))
        sent = {"bcast": n + n % 2, "reduce": n, "allreduce": 2 * n + n % 2}
        if p <= 3:
            up_and_down = n if p == 2 else n + (n + 1) // 2
            sent = dict.fromkeys(KINDS, n * (p > 1)) | {"allreduce": up_and_down * (p > 1)}
        for kind in KINDS:
            found = counted(kind, "two_tree", p, 24, root=p // 3 * (kind != "allreduce"), blocks=n)
            assert found.bytes_sent_per_rank == sent[kind] * 24 // n, (kind, n)
            if kind == "allreduce":
                assert found.n_rounds <= 2 * n_rounds
            else:
                # Where blocks are few, some may go a round before the turn of their edge.
                n_early = int(n < 8 or p == 3)
                assert n_rounds - n_early <= found.n_rounds <= n_rounds, (kind, n)


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@looped("p", [1, 2, 3, 7, 8, 12, 17])
def test_any_number_of_blocks_computes_the_same(kind: str, p: int) -> None:
    for turn, blocks in enumerate((1, 2, 5, 8, 99)):
        root = 0 if kind == "allreduce" else 3 * turn % p
        ops = ({"datatype": "int32"}, {"datatype": "uint64", "op": AFFINE})
        for flavour in ops[: 1 if kind == "bcast" else 2]:
            spec = make_spec(
                kind, {"name": "two_tree", "blocks": blocks}, p, root=root, count=11,
                in_place=turn % 2 == 1, **flavour,
            )  # fmt: skip
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)


def test_automatic_blocks_are_more_for_longer_vectors() -> None:
    machine = {"nodes": 8, "ranks_per_node": 1}
    found = [
        measure(
            compile_plan(make_spec("bcast", "two_tree", 0, machine, count=count, datatype="int8"))
        ).n_messages
        // 7
        for count in (1, 1 << 12, 1 << 20, 1 << 26)
    ]
    assert found[:2] == [1, 1]
    assert 1 < found[2] < found[3]
    assert found[-1] <= 16 * 6


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
