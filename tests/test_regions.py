"""Regions against lists of elements."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.regions import Regions

intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=4)
tables = st.lists(intervals, min_size=1, max_size=5)


def make(rows):
    flat = [interval for row in rows for interval in row]
    low, count = (np.array([i[k] for i in flat], dtype=np.int64) for k in range(2))
    return Regions(np.cumsum([0, *map(len, rows)]), low, count)


def elements(regions):
    """Return every row's elements, in order."""
    bounds = regions.indptr.tolist()
    return [
        [int(regions.low[j]) + e for j in range(a, b) for e in range(int(regions.count[j]))]
        for a, b in itertools.pairwise(bounds)
    ]


@given(tables)
def test_totals_count_every_element(rows):
    regions = make(rows)
    assert regions.totals.tolist() == [len(row) for row in elements(regions)]


@given(tables, st.integers(1, 7))
def test_cutting_keeps_elements_in_order_and_parts_even(rows, parts):
    regions = make(rows)
    cut = elements(regions.cut(parts))
    assert len(cut) == parts * len(rows)
    for i, whole in enumerate(elements(regions)):
        mine = cut[i * parts : (i + 1) * parts]
        assert [element for part in mine for element in part] == whole
        sizes = [len(part) for part in mine]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(tables, st.data())
def test_a_union_is_its_rows_one_after_another(rows, data):
    regions = make(rows)
    index = st.lists(st.integers(0, len(rows) - 1), max_size=4)
    lists = data.draw(st.lists(index, min_size=1, max_size=3))
    whole = elements(regions)
    assert elements(regions.union(lists)) == [
        [element for i in some for element in whole[i]] for some in lists
    ]
    assert elements(Regions.stack([regions, regions.take(np.array([0]))])) == [*whole, whole[0]]
