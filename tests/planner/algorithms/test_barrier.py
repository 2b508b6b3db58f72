"""Rounds and messages of barriers through one rank and around a ring."""

from __future__ import annotations

from collplan.planner.arrays.logarithms import ceil_log2
from looping import SIZES, looped
from schedules import counted


@looped("p", SIZES)
def test_signals_through_rank_0_are_the_fewest(p: int) -> None:
    for name, n_rounds in {"linear": 2 * (p - 1), "binomial": 2 * ceil_log2(p)}.items():
        found = counted("barrier", name, p, None)
        assert (found.n_rounds, found.n_messages) == (n_rounds, 2 * (p - 1))
    found = counted("barrier", "double_ring", p, None)
    assert found.n_rounds == found.n_messages == (2 * p - 1 if p > 1 else 0)
