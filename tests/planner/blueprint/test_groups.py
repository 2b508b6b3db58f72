"""Groups of ranks in CSR, and how positions fall into rows."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.blueprint.groups import Groups, blocks_of, rows_by, runs_of

places = st.lists(st.integers(0, 3), max_size=9)


def listed(rows):
    return [row.tolist() for row in rows]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4))
def test_groups_keep_what_they_are_made_of(lists):
    groups = Groups.of([np.array(some, dtype=np.int64) for some in lists])
    assert len(groups) == len(lists)
    assert groups.sizes.tolist() == [len(some) for some in lists]
    assert [groups[i].tolist() for i in range(len(groups))] == lists
    assert groups.ranks.dtype == np.int64


@given(places)
def test_rows_hold_all_positions_of_a_place_in_order_of_the_first(place):
    rows = listed(rows_by(np.array(place, dtype=np.int64)))
    in_order = list(dict.fromkeys(place))
    assert rows == [[i for i, p in enumerate(place) if p == value] for value in in_order]


@given(places)
def test_runs_are_neighbors_of_one_place(place):
    rows = listed(runs_of(np.array(place, dtype=np.int64)))
    runs = [list(run) for _, run in groupby(range(len(place)), key=place.__getitem__)]
    assert rows == runs


def test_blocks_are_consecutive():
    assert listed(blocks_of(6, 2)) == [[0, 1], [2, 3], [4, 5]]
    assert listed(blocks_of(3, 3)) == [[0, 1, 2]]
