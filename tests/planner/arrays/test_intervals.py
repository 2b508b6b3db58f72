"""Intervals: every function against the loop that it stands for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.arrays.intervals import hull, last_at_or_below, overlapping, union
from ragged import columns, ints, numbers

spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


@given(spans, st.booleans())
def test_unions_cover_the_same_elements_and_are_apart(rows, joins_neighbors):
    low, high = union(*columns(rows), joins_neighbors=joins_neighbors)
    joined = list(zip(low.tolist(), high.tolist(), strict=True))
    assert {x for a, b in joined for x in range(a, b)} == {x for a, b in rows for x in range(a, b)}
    gap = 1 if joins_neighbors else 0
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
