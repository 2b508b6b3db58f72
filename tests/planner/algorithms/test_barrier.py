"""Rounds and messages of barriers through one rank and around a ring."""

from __future__ import annotations

import pytest

from collplan.planner.arrays.logarithms import ceil_log2
from schedules import counted


@pytest.mark.parametrize("p", range(1, 65))
def test_signals_through_rank_0_are_the_fewest(p: int) -> None:
    for name, n_rounds in {"linear": 2 * (p - 1), "binomial": 2 * ceil_log2(p)}.items():
        found = counted("barrier", name, p, None)
        assert (found.n_rounds, found.n_messages) == (n_rounds, 2 * (p - 1))
    found = counted("barrier", "double_ring", p, None)
    assert found.n_rounds == found.n_messages == (2 * p - 1 if p > 1 else 0)
