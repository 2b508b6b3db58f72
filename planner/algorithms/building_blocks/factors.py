"""Numbers of ranks as products of factors, for algorithms that exchange in groups of a radix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from collplan.planner.algorithms.rounds import Index, Reduce, at
from collplan.planner.arrays import Ints


def factors(number: int, largest: int) -> tuple[int, ...] | None:
    """Return factors of a number that are at most `largest`, the greatest first; None if none do.

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
    """Return the factors of the greatest number up to `size` that has none above `largest`.

    Powers of two are such numbers, so that it is more than half of `size`.

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
    """Return factors of a number: first those that are at most `largest`, then greater primes.

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
    """Combine what came from members of a group of `factor` ranks, outwards from each one's own.

    Parameters
    ----------
    ranks : ndarray
        Positions.
    digit : ndarray of int64
        The number of each in its group. Groups combine in the order of these.
    factor : int
    spaces : tuple
        Where their own chunks are, where the result goes, where the chunks of others came, and
        how many chunks there lie between those of one sender and those of the next.
    **run
        The arguments of `at` that name the chunks; those of sender 0 where others' came.
    """
    value, result, arrived, apart = spaces
    first = run.pop("first")
    for step in range(1, factor):
        is_below = digit >= step
        slot = np.where(is_below, digit - step, step)
        own = value if step == 1 else result
        left, right = (
            at(
                np.where(is_incoming, arrived, own),
                first + np.where(is_incoming, slot * apart, 0),
                **run,
            )
            for is_incoming in (is_below, ~is_below)
        )
        yield Reduce(ranks, left, right, at(result, first, **run))
