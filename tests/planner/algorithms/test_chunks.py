"""Layouts against the obvious: a list of chunk sizes, added up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.algorithms.chunks import Listed, Packed, Repeated, Rotated, Slots
from collplan.planner.blueprint.regions import Regions

sizes = st.lists(st.integers(0, 5), min_size=1, max_size=7)


def locate(layout, member, first, n):
    """Return the elements of a run of chunks, one by one."""
    arrays = (np.array([x], dtype=np.int64) for x in (member, first, n))
    where = layout.locate(*arrays)
    return [int(o) + i for o, c in zip(where.offset, where.count, strict=True) for i in range(c)]


def span(low, count):
    return list(range(low, low + count))


@given(st.integers(0, 100), st.integers(1, 20))
def test_an_even_split_loses_nothing(count, parts):
    split = Regions.of(np.array([0]), np.array([count])).cut(parts).totals
    assert split.sum() == count
    assert split.max() - split.min() <= 1


@given(sizes, st.data())
def test_runs_lie_where_sizes_add_up(counts, data):
    m = len(counts)
    first = data.draw(st.integers(0, m - 1))
    n = data.draw(st.integers(0, m - first))
    array = np.array(counts, dtype=np.int64)
    run = span(sum(counts[:first]), sum(counts[first : first + n]))
    assert locate(Packed(array[None], m), 0, first, n) == run
    again = locate(Repeated(array[None], m, 3), 0, 2 * m + first, n)
    assert again == [2 * sum(counts) + element for element in run]
    rank = data.draw(st.integers(0, m - 1))
    turned = counts[rank:] + counts[:rank]
    assert locate(Rotated(array[None], m), rank, first, n) == span(
        sum(turned[:first]), sum(turned[first : first + n])
    )
    assert locate(Slots(array[None], m, 3), 0, 2 * m + first, 1) == span(
        2 * max(counts), counts[first]
    )


@given(sizes, st.data())
def test_members_of_the_second_group_find_their_own_chunks(counts, data):
    m = len(counts)
    rank, first = (data.draw(st.integers(0, m - 1)) for _ in range(2))
    both = np.array([[9] * m, counts])
    assert locate(Packed(both, m), m + rank, first, 1) == span(sum(counts[:first]), counts[first])
    turned = counts[rank:] + counts[:rank]
    assert locate(Rotated(both, m), m + rank, 0, m) == span(0, sum(turned))


@given(st.lists(sizes, min_size=1, max_size=4), st.data())
def test_listed_chunks_are_their_regions_one_after_another(rows, data):
    low = data.draw(st.permutations(range(sum(map(len, rows)))))
    flat = [count for row in rows for count in row]
    ends = np.cumsum([0, *map(len, rows)])
    regions = Regions(ends, 10 * np.array(low), np.array(flat))
    first = data.draw(st.integers(0, len(rows) - 1))
    n = data.draw(st.integers(0, len(rows) - first))
    wanted = [
        element for i in range(ends[first], ends[first + n])
        for element in span(10 * low[i], flat[i])
    ]  # fmt: skip
    layout = Listed(regions, np.array([0]), len(rows))
    assert locate(layout, 0, first, n) == wanted
    packed = Regions.of(np.cumsum(flat) - flat, np.array(flat))
    assert packed.is_packed
    assert locate(Listed(packed, np.array([0]), len(flat)), 0, 0, len(flat)) == span(0, sum(flat))
