"""Message sizes: texts and lists, and the counts that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.select.sizes import counts_of, parse_sizes
from collplan.specs import CollplanError, parse_spec


def test_sizes_are_texts_or_lists() -> None:
    assert parse_sizes("1KiB, 8") == parse_sizes([8, "1KiB", 1024]) == [8, 1024]
    assert parse_sizes(8) == parse_sizes(np.int64(8)) == [8]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([], "sizes: \\[\\] are no sizes; give some, as 64KiB,1MiB"),
        (True, "sizes: True are no sizes"),
        ([-1], "sizes: -1 is negative"),
        ("12", "sizes: 12 is not a multiple of the 8 bytes of float64"),
        ("8000", "sizes: 8000 is too large; give at most 999 times 8 bytes"),
    ],
)
def test_what_is_no_size_is_refused(sizes: Any, words: str) -> None:
    with pytest.raises(CollplanError, match=words):
        parse_sizes(sizes, 8, "float64", 999, "sizes")


def test_counts_are_of_elements_and_by_default_of_the_spec() -> None:
    spec = parse_spec({"collective": {"kind": "bcast", "count": 5, "datatype": "int32"}})
    assert counts_of(None, spec) == [5]
    assert counts_of("1KiB", spec) == [256]
    assert counts_of("1KiB", parse_spec({"collective": {"kind": "barrier"}})) == [0]
