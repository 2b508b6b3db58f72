"""Logarithms of integers against powers of two."""

from __future__ import annotations

import pytest

from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@pytest.mark.quick
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 1000, 2**31 - 1, 2**31, 2**62 + 1])
def test_powers_of_two_enclose_a_number(n: int) -> None:
    assert 2 ** floor_log2(n) <= n < 2 ** (floor_log2(n) + 1)
    assert n <= 2 ** ceil_log2(n) < 2 * n
