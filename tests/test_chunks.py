"""Layouts against the obvious: a list of chunk sizes, added up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.chunks import Own, Packed, PackedByRank, Rotated, Slots, split_evenly

sizes = st.lists(st.integers(0, 5), min_size=1, max_size=7)


def locate(layout, position, first, n):
    arrays = (np.array([x], dtype=np.int64) for x in (position, first, n))
    offset, count = layout.locate(*arrays)
    return int(offset[0]), int(count[0])


@given(st.integers(0, 100), st.integers(1, 20))
def test_an_even_split_loses_nothing(count, parts):
    split = split_evenly(count, parts)
    assert split.sum() == count
    assert split.max() - split.min() <= 1


@given(sizes, st.data())
def test_runs_lie_where_sizes_add_up(counts, data):
    m = len(counts)
    first = data.draw(st.integers(0, m - 1))
    n = data.draw(st.integers(0, m - first))
    array = np.array(counts, dtype=np.int64)
    run = (sum(counts[:first]), sum(counts[first : first + n]))
    assert locate(Packed(array), 0, first, n) == run
    by_rank = PackedByRank(np.stack((array[::-1], array)))
    assert locate(by_rank, 1, first, n) == run
    assert locate(Own(array), 0, first, 1) == (0, counts[first])
    rank = data.draw(st.integers(0, m - 1))
    turned = counts[rank:] + counts[:rank]
    assert locate(Rotated(array), rank, first, n) == (
        sum(turned[:first]), sum(turned[first : first + n]),
    )  # fmt: skip
    assert locate(Slots(array, 3), 0, 2 * m + first, 1) == (2 * max(counts), counts[first])
