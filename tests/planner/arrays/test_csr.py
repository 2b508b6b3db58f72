"""Ragged arrays and intervals: every function against the loop that it stands for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.arrays import csr
from ragged import columns, ints, numbers

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12)


@given(numbers)
def test_lengths_become_offsets_rows_and_places(lengths):
    indptr = csr.running_total(lengths)
    assert indptr.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert csr.lengths_of(indptr).tolist() == lengths
    entries = [(row, place) for row, n in enumerate(lengths) for place in range(n)]
    assert list(zip(*(c.tolist() for c in csr.expand(ints(lengths))), strict=True)) == entries
    rows = csr.row_numbers(indptr)
    assert rows.tolist() == [row for row, _ in entries]
    assert csr.indptr_of(rows, len(lengths)).tolist() == indptr.tolist()


def test_an_entry_is_repeated_without_being_stored():
    again = csr.repeated(np.array([7], dtype=np.int8), 3)
    assert again.tolist() == [7, 7, 7]
    assert (again.dtype, again.strides) == (np.int8, (0,))


@given(pairs)
def test_ranges_are_listed_one_after_another(rows):
    first, lengths = columns(rows)
    assert csr.ranges(first, lengths).tolist() == [x for a, n in rows for x in range(a, a + n)]


@given(numbers, st.data())
def test_rows_are_taken_and_summed(lengths, data):
    indptr = csr.running_total(lengths)
    index = st.integers(0, len(lengths) - 1)
    chosen = data.draw(st.lists(index, max_size=6)) if lengths else []
    taken, entries = csr.take_rows(indptr, ints(chosen))
    assert taken.tolist() == csr.running_total([lengths[i] for i in chosen]).tolist()
    assert entries.tolist() == [x for i in chosen for x in range(indptr[i], indptr[i + 1])]
    values = ints(data.draw(st.lists(st.integers(-9, 9), min_size=sum(lengths),
                                     max_size=sum(lengths))))  # fmt: skip
    sums = [values[indptr[i] : indptr[i + 1]].sum() for i in range(len(lengths))]
    assert csr.row_sums(indptr, values).tolist() == sums


@given(pairs)
def test_runs_begin_where_any_column_changes(rows):
    begins = [i == 0 or rows[i] != rows[i - 1] for i in range(len(rows))]
    assert csr.run_starts(*columns(rows)).tolist() == begins
    bounds = [i for i, begin in enumerate(begins) if begin] + [len(rows)]
    assert csr.run_bounds(*columns(rows)).tolist() == bounds


@given(pairs)
def test_groups_and_keys(rows):
    group, size = columns(rows)
    keys = group.tolist()
    assert csr.sorted_unique(size).tolist() == sorted(set(size.tolist()))
    assert csr.occurrence(group).tolist() == [keys[:i].count(k) for i, k in enumerate(keys)]
    offsets = [sum(n for k, n in rows[:i] if k == keys[i]) for i in range(len(rows))]
    assert csr.group_offsets(group, size).tolist() == offsets
    order, indptr = csr.group_by(group, 5)
    for number in range(5):
        members = order[indptr[number] : indptr[number + 1]].tolist()
        assert members == [i for i, k in enumerate(keys) if k == number]
    assert csr.inverse(order).tolist() == [order.tolist().index(i) for i in range(len(rows))]
    by_key = np.argsort(csr.joint_key(group, size, 10), kind="stable").tolist()
    assert by_key == sorted(range(len(rows)), key=rows.__getitem__)
