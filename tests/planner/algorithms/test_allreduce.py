"""Rounds, bytes and messages of allreduces in blocks, and to either side of a ring."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.factors import mixed_factors
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from collplan.planner.plan.plan import Op
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec
from schedules import counted, schedule


@pytest.mark.many
@looped("p", SIZES)
def test_blocks_of_an_allreduce_take_as_many_rounds_as_both_halves(p: int) -> None:
    for n in (1, 2, 5) if p <= 20 else (1, 3):
        n_rounds = n - 1 + ceil_log2(p) if p > 1 else 0
        found = counted("allreduce", "circulant", p, n * p, blocks=n)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (2 * n_rounds, 2 * (p - 1) * n)
        found = counted("reduce_scatter_block", "circulant", p, n, blocks=n)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, (p - 1) * n)


@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter_block"])
@looped("p", [1, 2, 3, 7, 8, 12, 17, 33])
def test_blocks_are_combined_whatever_their_number(kind: str, p: int) -> None:
    for turn, blocks in enumerate((1, 2, 5, 99, "auto")):
        chosen = {"name": "circulant", "blocks": blocks}
        plan = compile_plan(
            make_spec(kind, chosen, p, count=11, in_place=turn % 2 == 1), is_proved=False
        )
        verify(plan)
        check_result(plan)


@looped("p", [p for p in SIZES if p == 1 or p % 2 == 0])
def test_swing_takes_the_rounds_of_its_vectors(p: int) -> None:
    found = counted("allreduce", "swing", p, 2 * p)
    assert (found.n_rounds, found.bytes_sent_per_rank) == (2 * ceil_log2(p), 4 * (p - 1))
    log, is_folded = floor_log2(p), p & (p - 1) > 0
    found = counted("allreduce", "swing", p, 5, whole=True)
    assert found.n_rounds == log + 2 * is_folded
    assert found.bytes_sent_per_rank == 5 * (log + is_folded)


def test_swing_reaches_to_either_side_in_turns() -> None:
    distances = (1, -1, 3, -5)
    rounds = [
        sorted((rank, (rank + (d if rank % 2 == 0 else -d)) % 16) for rank in range(16))
        for d in distances
    ]
    whole = schedule("allreduce", "swing", 16, whole=True)
    assert [[ends[:2] for ends in sent] for sent in whole if sent] == rounds
    parts = [[ends[:2] for ends in sent] for sent in schedule("allreduce", "swing", 16) if sent]
    assert parts == rounds + rounds[::-1]


@looped("p", SIZES)
def test_a_census_takes_the_fewest_rounds(p: int) -> None:
    log = ceil_log2(p)
    found = counted("allreduce", "census", p, 3)
    assert (found.n_rounds, found.bytes_sent_per_rank) == (log, 3 * log)
    plan = compile_plan(make_spec("allreduce", "census", p, count=1, datatype="int32"))
    n_reductions = np.bincount(plan.rank[plan.op == Op.REDUCE], minlength=p)
    assert n_reductions.max() == (log + (p - 1).bit_count() - 1 if p > 1 else 0)


@looped("p", [2, 5, 8, 12, 17, 23])
def test_a_census_goes_over_the_widths_of_its_windows(p: int) -> None:
    width, rounds = 0, []
    for digit in f"{p - 1:b}":
        distance = width + int(digit)
        rounds.append(sorted((rank, (rank + distance) % p, 0) for rank in range(p)))
        width += distance
    assert width == p - 1
    assert [sent for sent in schedule("allreduce", "census", p) if sent] == rounds


@pytest.mark.many
@looped("p", SIZES)
def test_vectors_are_divided_by_every_factor_and_come_back(p: int) -> None:
    for radix in (2, 3, 4, 7, 100):
        n_rounds = 2 * sum(factor - 1 for factor in mixed_factors(p, radix))
        found = counted("allreduce", "recursive_dividing", p, 2 * p, radix=radix)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, 4 * (p - 1))


@pytest.mark.parametrize("radix", [2, 3, 5, 16])
def test_vectors_are_divided_in_rank_order(radix: int) -> None:
    for p in (1, 2, 6, 7, 12, 15):
        chosen = {"name": "recursive_dividing", "radix": radix}
        plan = compile_plan(
            make_spec("allreduce", chosen, p, count=5, datatype="uint64", op=AFFINE),
            is_proved=False,
        )
        verify(plan)
        check_result(plan)
