"""Factors of the number of ranks, for algorithms that exchange in groups up to a radix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from collplan.planner.algorithms.rounds import Chunks, Index, Reduce, at
from collplan.planner.arrays import Ints


def factors(number: int, largest: int) -> tuple[int, ...] | None:
    """Return factors up to `largest` whose product is `number`, in descending order.

    Return None if there are no such factors.

    Examples
    --------
    >>> factors(24, 4), factors(24, 8), factors(14, 4)
    ((4, 3, 2), (8, 3), None)
    """
    found = []
    for factor in range(min(largest, number), 1, -1):
        while number % factor == 0:
            found.append(factor)
            number //= factor
    return tuple(found) if number == 1 else None


@lru_cache(maxsize=64)
def greatest_product(size: int, largest: int) -> tuple[int, ...]:
    """Return factors of the greatest number up to `size` that has factors up to `largest`.

    Powers of two are such numbers, so that the product is more than half of `size`.

    Examples
    --------
    >>> greatest_product(24, 4), greatest_product(23, 4), greatest_product(1, 4)
    ((4, 3, 2), (3, 3, 2), ())
    """
    found = None
    while found is None:
        found, size = factors(size, largest), size - 1
    return found


def mixed_factors(number: int, largest: int) -> tuple[int, ...]:
    """Return factors whose product is `number`: factors up to `largest`, then greater primes.

    Examples
    --------
    >>> mixed_factors(24, 4), mixed_factors(14, 4), mixed_factors(35, 4)
    ((4, 3, 2), (2, 7), (5, 7))
    """
    found = []
    tried = min(largest, number)
    while number > 1:
        while number % tried == 0:
            found.append(tried)
            number //= tried
        tried = tried - 1 if 2 < tried <= largest else max(largest, tried) + 1
    return tuple(found)


def in_digit_order(
    ranks: Any, digit: Ints, factor: int, spaces: tuple[Index, int, int, int], **run: Any
) -> Iterator[Reduce]:
    """Combine the operands of a group of `factor` ranks, one after another in their order.

    All ranks of the group thus get the same bits. A rank's own place among what it has received is
    free, and holds partial results.

    Parameters
    ----------
    ranks : ndarray
        Positions that combine.
    digit : ndarray of int64
        Number of each position in its group, which is also the order of operands.
    factor : int
        Number of ranks per group.
    spaces : tuple
        Space of a rank's own chunks, space of the result, space of received chunks, and
        number of chunks in the latter between those of one sender and those of the next.
    **run
        Arguments of `at` that name the chunks; for received chunks, those of sender 0.
    """
    value, result, arrived, apart = spaces
    first = run.pop("first")

    def operand(number: int) -> Chunks:
        is_own = digit == number
        shift = np.where(is_own, 0, number * apart)
        return at(np.where(is_own, value, arrived), first + shift, **run)

    partial = at(arrived, first + digit * apart, **run)
    for other in range(1, factor):
        left = partial if other > 1 else operand(0)
        whole = at(result, first, **run)
        yield Reduce(ranks, left, operand(other), whole if other == factor - 1 else partial)
