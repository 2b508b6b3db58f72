"""Sizes with units."""

import pytest

from collplan.specs import parse_bytes
from collplan.specs.syntax.numbers import parse_rate, write_rate


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (65536, 65536),
        ("17", 17),
        ("8B", 8),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("2MB", 2_000_000),
        ("1.5 MiB", 1_572_864),
        (" 3 GB ", 3_000_000_000),
        (4.0, 4),
    ],
)
def test_sizes_become_bytes(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (-1, "-1 is negative"),
        ("-1KiB", "is not a size"),
        ("64 foo", "KiB"),
        ("", "is not a size"),
        (True, "is not a size"),
        (None, "is not a size"),
        ("0.3B", "whole number"),
        ("1e3", "is not a size"),
    ],
)
def test_what_is_no_size_is_refused(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("25000000bit", 25_000_000), ("25Mbit", 25_000_000), ("1.5MiB/s", 12_582_912)],
)
def test_rates_become_bits_per_second(text: object, rate: int) -> None:
    assert parse_rate(text) == parse_rate(write_rate(rate)) == parse_rate(parse_rate(text)) == rate


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("100", "is not a rate; give"),
        (True, "is not a rate"),
        (None, "is not a rate"),
        (1.5, "1.5 has no unit; give bits or bytes per second"),
        (10**9, "1000000000 has no unit"),
        ("0bit", "out of range"),
        ("0.3bit", "whole number"),
    ],
)
def test_what_is_no_rate_is_refused(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_rate(text)


def test_prefixes_of_rates_are_powers_of_1000_and_1024():
    for base, suffix in ((1000, ""), (1024, "i")):
        for power, prefix in enumerate("kMG", 1):
            assert parse_rate(f"1{prefix}{suffix}bit") == base**power
            assert parse_rate(f"1{prefix.upper()}{suffix}B/s") == 8 * base**power


def test_rates_have_at_most_60_bits():
    assert parse_rate(f"{2**60}bit") == 2**60
    with pytest.raises(ValueError, match="out of range"):
        parse_rate(f"{2**60 + 1}bit")
