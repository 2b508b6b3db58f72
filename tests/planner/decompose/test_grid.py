"""Grids: who leads which column, from where the root is, and whom columns serve."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collplan.planner.decompose.grid import Grid


@st.composite
def grids(draw):
    """Rows of any lengths, their positions dealt in any order, up to as many columns as fit."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    positions = draw(st.permutations(range(sum(lengths))))
    cuts = np.cumsum(lengths)[:-1]
    rows = [np.sort(row) for row in np.split(np.array(positions), cuts)]
    n_columns = draw(st.integers(1, max(lengths)))
    return Grid(rows, n_columns, draw(st.sampled_from(positions)))


@given(grids())
def test_the_root_leads_the_first_column(grid):
    assert grid.leader(grid.root_row, 0) == grid.root
    assert grid.rows[grid.root_row][grid.shift] == grid.root
    assert grid.column(0)[grid.root_row] == grid.root


@given(grids())
def test_a_column_has_a_leader_on_every_row(grid):
    for column in range(grid.n_columns):
        leaders = grid.column(column)
        assert len(leaders) == len(grid.rows)
        for row, leader in enumerate(leaders):
            assert leader in grid.rows[row]
            assert column in grid.led_by[row][grid.place(row, column)]


@given(grids())
def test_columns_are_led_evenly(grid):
    """No position leads two columns more than another of its row."""
    for row in range(len(grid.rows)):
        led = grid.led_by[row]
        assert sorted(column for columns in led for column in columns) == list(
            range(grid.n_columns)
        )
        numbers = [len(columns) for columns in led]
        assert max(numbers) - min(numbers) <= 1


@given(grids())
def test_every_position_is_served_by_one_column_its_leaders_evenly(grid):
    for row, positions in enumerate(grid.rows):
        served = [grid.followers(row, column) for column in range(grid.n_columns)]
        assert sorted(np.concatenate(served).tolist()) == positions.tolist()
        teams = [team for team in served if len(team)]
        assert len(teams) == min(grid.n_columns, len(positions))
        assert max(map(len, teams)) - min(map(len, teams)) <= 1
        for column, team in enumerate(served):
            assert not len(team) or grid.leader(row, column) in team


def test_leaders_of_a_short_row_wrap_around():
    """The picture in the class's docstring."""
    grid = Grid([np.array([0, 1, 2]), np.array([3, 4])], 3, 0)
    assert [grid.column(column).tolist() for column in range(3)] == [[0, 3], [1, 4], [2, 3]]
    assert grid.led_by[1] == [[0, 2], [1]]
    assert grid.followers(1, 2).tolist() == []


def test_leaders_are_counted_from_the_root():
    grid = Grid([np.array([0, 1, 2]), np.array([3, 4, 5])], 2, 5)
    assert (grid.root_row, grid.shift) == (1, 2)
    assert [grid.column(column).tolist() for column in range(2)] == [[2, 5], [0, 3]]
    assert grid.followers(1, 0).tolist() == [4, 5]
    assert grid.followers(1, 1).tolist() == [3]
