"""Numbers of ranks as products of small factors, for algorithms with a radix."""

from __future__ import annotations

from functools import lru_cache


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
