"""Rounded binary logarithms of integers."""

from __future__ import annotations


def floor_log2(n: int) -> int:
    """Return ⌊log₂ n⌋ for n ≥ 1."""
    return n.bit_length() - 1


def ceil_log2(n: int) -> int:
    """Return ⌈log₂ n⌉ for n ≥ 1."""
    return (n - 1).bit_length()
