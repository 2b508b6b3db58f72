"""Rounds and bytes of broadcasts that scatter, and of the trees that reductions share with them."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from collplan.planner.plan.plan import Op
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec
from schedules import counted, schedule


@pytest.mark.quick
@pytest.mark.parametrize("p", [1, 2, 4, 8, 16, 32, 64])
def test_a_scatter_and_doubling_take_as_many_rounds(p: int) -> None:
    for root in {0, p // 3, p - 1}:
        found = counted("bcast", "scatter_doubling", p, 3 * p, root)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (2 * floor_log2(p), 6 * (p - 1))


@pytest.mark.many
@looped("p", SIZES)
def test_several_chains_are_shorter(p: int) -> None:
    for fanout in (1, 2, 5, 64):
        f = max(1, min(fanout, p - 1))
        most = f - 1 - (1 - p) // f
        for kind in ("bcast", "reduce"):
            found = counted(kind, "chain", p, 3, p // 3, fanout=fanout)
            assert found.n_rounds <= most
            assert found.n_rounds == most or f > 1
            assert found.bytes_sent_per_rank == 3 * (p > 1) * (f if kind == "bcast" else 1)


@looped("p", SIZES)
def test_a_tree_in_post_order_ends_at_the_last_rank(p: int) -> None:
    for root in {0, p - 1}:
        found = counted("reduce", "in_order_binary", p, 3, root)
        assert found.n_rounds <= 2 * floor_log2(p) + (root < p - 1)
        assert found.bytes_sent_per_rank == 3 * (p > 1)


@pytest.mark.parametrize("fanout", [2, 3, 9])
def test_chains_combine_in_rank_order(fanout: int) -> None:
    for p in (1, 2, 5, 8, 11):
        chosen = {"name": "chain", "fanout": fanout}
        for root in {0, p // 2, p - 1}:
            plan = compile_plan(
                make_spec("reduce", chosen, p, root=root, count=5, datatype="uint64", op=AFFINE),
                is_proved=False,
            )
            verify(plan)
            check_result(plan)


@looped("p", SIZES)
def test_holders_double_from_the_nearest_rank_on(p: int) -> None:
    log = ceil_log2(p)
    found = counted("bcast", "near_binomial", p, 3, p // 3)
    assert (found.n_rounds, found.bytes_sent_per_rank) == (log, 3 * log)
    rounds = schedule("bcast", "near_binomial", p)
    held = 1
    for sent in rounds:
        assert sent == [(rank, rank + held, 0) for rank in range(min(held, p - held))]
        held = min(p, 2 * held)
    assert held == p


@looped("p", SIZES)
def test_halves_go_down_either_side_and_over(p: int) -> None:
    found = counted("bcast", "split_binary", p, 2, p // 3)
    assert found.n_rounds <= 2 * floor_log2(p) + 1
    assert found.bytes_sent_per_rank <= 3
    plan = compile_plan(make_spec("bcast", "split_binary", p, root=p // 3, count=2))
    sends = plan.op == Op.SEND
    assert plan.elements[sends].max(initial=1) == 1
    assert np.bincount(plan.peer[sends], minlength=p).tolist() == [
        2 * (rank != p // 3) for rank in range(p)
    ]


@pytest.mark.parametrize("dealt", [False, True])
@looped("p", SIZES)
def test_a_binary_tree_combines_along_the_edges_of_its_broadcast(p: int, dealt: bool) -> None:
    edges, chosen = [], {"name": "binary", "dealt": dealt}
    for kind in ("bcast", "reduce"):
        plan = compile_plan(make_spec(kind, chosen, p, root=p // 3, count=1))
        sends = np.flatnonzero(plan.op == Op.SEND)
        ends = plan.rank[sends].tolist(), plan.peer[sends].tolist()
        edges.append(sorted(zip(*(ends if kind == "bcast" else ends[::-1]), strict=True)))
    assert edges[0] == edges[1]
    found = counted("reduce", "binary", p, 3, p // 3, dealt=dealt)
    assert found.n_rounds <= 2 * floor_log2(p)
    assert found.bytes_sent_per_rank == 3 * (p > 1)
