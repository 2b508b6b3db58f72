"""Rounds, bytes and messages of exclusive scans."""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from collplan.planner import compile_plan
from collplan.planner.plan.plan import Op
from looping import SIZES, looped
from oracle import make_spec
from schedules import counted, schedule


@looped("p", SIZES)
def test_123_doubling_takes_the_rounds_of_its_formula(p: int) -> None:
    rounds = ceil(log2(p - 1) + log2(4 / 3) - 1e-9) if p > 2 else p - 1
    found = counted("exscan", "doubling_123", p, 6)
    assert (found.n_rounds, found.bytes_sent_per_rank) == (rounds, 6 * rounds)
    plan = compile_plan(make_spec("exscan", "doubling_123", p, count=1))
    n_reductions = np.bincount(plan.rank[plan.op == Op.REDUCE], minlength=p)
    assert n_reductions.max() <= rounds


@looped("p", range(2, 41))
def test_123_doubling_sends_to_distances_1_2_3_6_and_so_on(p: int) -> None:
    distances = [1, *(d for d in (2, 3, 6, 12, 24, 48) if (d == 2 and p > 2) or 3 <= d < p - 1)]
    rounds = [
        # From the third round on rank 0, before which nobody is, has nothing to say.
        [(rank, rank + d, 0) for rank in range(int(d > 2), p - d)]
        for d in distances
    ]
    assert [sent for sent in schedule("exscan", "doubling_123", p) if sent] == rounds
