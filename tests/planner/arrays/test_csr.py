"""Ragged arrays and intervals: every function against the loop that it stands for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.arrays import csr
from collplan.planner.arrays.intervals import hull, last_at_or_below, overlapping, union

numbers = st.lists(st.integers(0, 6), max_size=12)
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12)
spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def ints(values):
    return np.array(values, dtype=np.int64)


def columns(rows, n=2):
    return [ints([row[i] for row in rows]) for i in range(n)]


@given(numbers)
def test_lengths_become_offsets_rows_and_places(lengths):
    indptr = csr.running_total(lengths)
    assert indptr.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    entries = [(row, place) for row, n in enumerate(lengths) for place in range(n)]
    assert list(zip(*(c.tolist() for c in csr.expand(ints(lengths))), strict=True)) == entries
    rows = csr.row_numbers(indptr)
    assert rows.tolist() == [row for row, _ in entries]
    assert csr.indptr_of(rows, len(lengths)).tolist() == indptr.tolist()


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


@given(spans, st.booleans())
def test_unions_cover_the_same_elements_and_are_apart(rows, joins_neighbours):
    low, high = union(*columns(rows), joins_neighbours=joins_neighbours)
    joined = list(zip(low.tolist(), high.tolist(), strict=True))
    assert {x for a, b in joined for x in range(a, b)} == {x for a, b in rows for x in range(a, b)}
    gap = 1 if joins_neighbours else 0
    assert all(one[1] + gap <= other[0] for one, other in pairwise(joined))
    # No union ends where nobody's interval does, nor is cut where one goes on.
    assert {a for a, _ in joined} <= {a for a, _ in rows}
    assert all(any(a <= c and d <= b for a, b in joined) for c, d in rows)


@given(spans)
def test_overlaps_are_of_two_intervals(rows):
    want = [
        any(i != j and a < d and c < b for j, (c, d) in enumerate(rows))
        for i, (a, b) in enumerate(rows)
    ]
    assert overlapping(*columns(rows)).tolist() == want


@given(numbers, st.integers(-1, 7))
def test_the_last_begin_at_or_below_an_address_is_found(begins, address):
    low = ints(sorted(begins))
    below = [i for i, begin in enumerate(low) if begin <= address]
    assert int(last_at_or_below(low, ints([address]))[0]) == max(below, default=-1)


@given(st.integers(0, 9), st.integers(1, 4), st.integers(-9, 9), st.integers(1, 4))
def test_hulls_hold_all_blocks_and_no_more(offset, count, stride, repeat):
    touched = {offset + turn * stride + x for turn in range(repeat) for x in range(count)}
    low, high = hull(ints([offset]), ints([count]), ints([stride]), ints([repeat]))
    assert (int(low[0]), int(high[0])) == (min(touched), max(touched) + 1)
