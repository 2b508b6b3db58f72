"""Regions against lists of elements."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner.blueprint.regions import PairTable, Regions

intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=4)
tables = st.lists(intervals, min_size=1, max_size=5)


def make(rows):
    flat = [interval for row in rows for interval in row]
    low, count = (np.array([i[k] for i in flat], dtype=np.int64) for k in range(2))
    return Regions(np.cumsum([0, *map(len, rows)]), low, count)


def elements(regions):
    """Return every row's elements, in order."""
    bounds, (stride, repeat) = regions.indptr.tolist(), regions.pattern
    return [
        [
            int(regions.low[j]) + turn * int(stride[j]) + e
            for j in range(a, b)
            for turn in range(int(repeat[j]))
            for e in range(int(regions.count[j]))
        ]
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


@settings(deadline=None)  # the first call loads machine code
@given(tables, st.data())
def test_groups_are_their_rows_one_after_another_in_few_intervals(rows, data):
    regions = make(rows)
    index = st.lists(st.integers(0, len(rows) - 1), max_size=4)
    lists = data.draw(st.lists(index, min_size=1, max_size=3))
    flat = np.array([i for some in lists for i in some], dtype=np.int64)
    grouped = regions.grouped(flat, np.array([len(some) for some in lists]))
    assert elements(grouped) == elements(regions.union(lists))
    assert grouped.totals.tolist() == [len(row) for row in elements(grouped)]
    one_each = np.ones(len(lists), dtype=np.int64)
    again = Regions.stack([grouped, regions]).grouped(np.arange(len(grouped)), one_each)
    assert elements(again) == elements(grouped)
    assert len(again.low) == len(grouped.low) <= len(regions.union(lists).low)


def test_columns_of_blocks_are_one_interval_at_a_stride():
    given = PairTable(36, 2, 1, 6)
    columns = given.grouped(np.array([0, 2, 4, 1, 3, 5]), np.array([3, 3]))
    assert columns.low.tolist() == [0, 2]
    assert columns.pattern[0].tolist() == [4, 4]
    assert columns.pattern[1].tolist() == [3, 3]


@given(st.integers(1, 5), st.integers(0, 3), st.data())
def test_a_table_of_pairs_is_its_rows_though_it_has_none(size, count, data):
    divisor = data.draw(st.sampled_from([1, size]))
    table = PairTable(size * size, count, divisor, size)
    rows = [i // divisor % size * count for i in range(size * size)]
    wanted = [list(range(low, low + count)) for low in rows]
    assert elements(Regions(table.indptr, table.low, table.count)) == wanted
    index = data.draw(st.lists(st.integers(0, size * size - 1), max_size=4))
    assert elements(table.take(np.array(index, dtype=np.int64))) == [wanted[i] for i in index]
    assert table.totals.tolist() == [count] * len(table)


def test_tables_of_pairs_at_a_stride_are_stacked_without_their_rows():
    table = PairTable(9, 4, 1, 3, first=2, unit=2, turns=(6, 2))
    wanted = [[2 + 2 * (i % 3) + turn * 6 + k for turn in range(2) for k in range(2)]
              for i in range(9)]  # fmt: skip
    assert elements(table.take(np.arange(9))) == wanted
    stacked = Regions.stack([table, table])
    assert isinstance(stacked, PairTable)
    assert elements(stacked.take(np.arange(18))) == 2 * wanted
    others = Regions.stack([table, PairTable(9, 4, 1, 3)])
    assert elements(others) == [
        *wanted,
        *(list(range(4 * (i % 3), 4 * (i % 3) + 4)) for i in range(9)),
    ]
