"""Covering arrays have all pairs that are possible, and no other."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from covering import pairs, values

SIZES = {"algorithm": range(7), "root": range(3), "count": range(5), "ranks": range(1, 9)}


def found(cases, first, second):
    return {(case[first], case[second]) for case in cases}


def test_every_pair_occurs_in_few_cases() -> None:
    cases = pairs(SIZES)
    for first, second in combinations(SIZES, 2):
        assert found(cases, first, second) == set(product(SIZES[first], SIZES[second]))
    # The two longest dimensions need 56; all of the product are 840.
    assert len(cases) <= 62
    assert cases == pairs(SIZES)


def test_impossible_cases_take_no_other_pairs_along() -> None:
    """Roots above the number of ranks do not exist, and algorithm 3 takes powers of two."""

    def is_possible(case):
        is_power = case.get("ranks", 1) in (1, 2, 4, 8)
        return case.get("root", 0) < case.get("ranks", 9) and (
            case.get("algorithm") != 3 or is_power
        )

    cases = pairs(SIZES, is_possible)
    assert all(map(is_possible, cases))
    possible = {
        (algorithm, ranks)
        for algorithm, ranks in product(range(7), range(1, 9))
        if is_possible({"algorithm": algorithm, "ranks": ranks})
    }
    assert found(cases, "algorithm", "ranks") == possible
    assert found(cases, "root", "count") == set(product(range(3), range(5)))
    # A root and a number of ranks go together only where a third value allows it.
    assert (2, 2) not in found(cases, "root", "ranks")


@pytest.mark.quick
@pytest.mark.parametrize("n", [0, 1, 2])
def test_one_dimension_is_its_values(n: int) -> None:
    assert pairs({"kind": range(n)}) == [{"kind": value} for value in range(n)]
    assert pairs({"kind": range(n), "empty": ()}) == pairs({"kind": range(n)})


def test_every_value_occurs_beside_those_of_a_dimension_in_fewer_cases() -> None:
    cases = pairs(SIZES)
    few = values(cases, "root")
    for name in SIZES:
        assert found(few, "root", name) == found(cases, "root", name)
    assert all(case in cases for case in few)
    # Three roots and eight numbers of ranks need 24.
    assert 24 <= len(few) <= 30
