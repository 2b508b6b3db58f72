"""Two trees whose roots exchange results: their schedule, and what plans count."""

from __future__ import annotations

import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.dual_trees import dual_trees, trees
from collplan.planner.arrays.logarithms import floor_log2
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec
from schedules import Sent, counted, schedule


def trees_of(p: int) -> tuple[tuple[int, int], dict[int, list[int]]]:
    """Return the roots, and a list of the children of every position."""
    roots, children = trees(p)
    return roots, {
        node: [one for one in row if one >= 0] for node, row in enumerate(children.tolist())
    }


def played(p: int, n: int, phase: int) -> list[list[Sent]]:
    """Return the messages of a game in which an edge carries, in its turns, what has arrived.

    In round t, edges of color t + phase modulo 3 have their turn. Positions hear from their
    children in order; the roots exchange results.
    """
    roots, children = trees_of(p)
    color = dict.fromkeys(roots, 0)
    for node in reversed(range(p)):
        color |= {c: (color[node] + 1 + i) % 3 for i, c in enumerate(children[node])}
    edges = [(child, node) for node in range(p) for child in children[node]]
    summed = {node: n if not children[node] else 0 for node in range(p)}
    heard = dict.fromkeys(edges, 0)
    known = dict.fromkeys(range(p), 0)
    rounds = []
    while min(known.values()) < n:
        number, sent, ups, downs = len(rounds) + phase, [], [], []
        for child, node in edges:
            if color[child] != number % 3:
                continue
            elder = children[node][: children[node].index(child)]
            block = heard[child, node]
            if block < summed[child] and all(heard[one, node] > block for one in elder):
                sent.append((child, node, block))
                ups.append((child, node))
            if known[child] < known[node]:
                sent.append((node, child, known[child]))
                downs.append(child)
        meet, (low, high) = known[roots[0]], roots
        if number % 3 == 0 and meet < min(summed[low], summed[high]):
            sent += [(low, high, meet), (high, low, meet)]
            downs += roots
        for edge in ups:
            heard[edge] += 1
            summed[edge[1]] = min(heard[one, edge[1]] for one in children[edge[1]])
        for node in downs:
            known[node] += 1
        rounds.append(sorted(sent))
    return rounds


@pytest.mark.quick
@looped("p", SIZES[1:])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_edges_carry_blocks_as_soon_as_they_may(n: int, p: int) -> None:
    best = min((played(p, n, phase) for phase in range(3)), key=len)
    assert schedule("allreduce", "dual_root", p, blocks=n) == best
    assert len(best) == dual_trees(p).n_rounds + 3 * (n - 1)


@looped("p", range(2, 130))
def test_trees_are_binary_halves_in_post_order(p: int) -> None:
    roots, children = trees_of(p)
    assert roots == ((p + 1) // 2 - 1, p - 1)
    assert sorted([*roots, *(one for some in children.values() for one in some)]) == list(range(p))
    for node, some in children.items():
        assert len(some) <= 2
        assert some == [] or some[0] == node - 1
        assert all(child < node for child in some)
    height = floor_log2((p + 1) // 2)
    assert dual_trees(p).n_rounds <= 4 * height + 1
    published = {5: 5, 8: 7, 12: 9, 17: 11}
    assert dual_trees(p).n_rounds == published.get(p, dual_trees(p).n_rounds)


@looped("p", SIZES)
def test_rounds_and_bytes_are_those_of_the_formulas(p: int) -> None:
    for n in (1, 2, 3, 8):
        found = counted("allreduce", "dual_root", p, 24, blocks=n)
        assert found.bytes_sent_per_rank == (min(3, (p + 1) // 2) * 24 if p > 1 else 0)
        if p <= 4:
            # Roots without two children need no third round per block.
            assert found.n_rounds == (0, n, 2 * n + 1, 2 * n + 1)[p - 1]
            continue
        n_rounds = dual_trees(p).n_rounds + 3 * (n - 1)
        assert n_rounds - 1 <= found.n_rounds <= n_rounds


@looped("p", [1, 2, 3, 4, 7, 8, 12, 17])
def test_any_number_of_blocks_computes_the_same(p: int) -> None:
    for turn, blocks in enumerate((1, 2, 5, 8, 99)):
        for flavour in ({"datatype": "int32"}, {"datatype": "uint64", "op": AFFINE}):
            spec = make_spec(
                "allreduce", {"name": "dual_root", "blocks": blocks}, p, count=11,
                in_place=turn % 2 == 1, **flavour,
            )  # fmt: skip
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)
