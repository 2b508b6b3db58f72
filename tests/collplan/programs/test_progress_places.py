"""Places of ranks and of the threads that make their progress."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from collplan.executors.mpi.host.processes import affinity
from collplan.programs.progress_places import ProgressPlaces, find_places, places_left, places_on
from collplan.specs.errors import CollplanError


def test_cores_of_every_node_have_the_processors_that_are_named() -> None:
    places = places_on([3, 0, 3, 0], [4, 5, 6, 7])
    # Two free cores, 1 and 3, in turn; the ranks hold cores 0 and 2.
    assert [place.own for place in places] == [4, 4, 6, 6]
    assert [place.of() for place in places] == [5, 5, 7, 7]
    assert [place.n_spare for place in places] == [2] * 4
    # Without a free core nobody has a place.
    assert [place.by_policy for place in places_on([0, 0], [1, 2])] == [{}, {}]
    with pytest.raises(CollplanError, match="cores: 1 processors, a node has 2 ranks"):
        places_on([0, 0], [1])


@pytest.mark.parametrize("wrong", [True, "1", 1.0, None])
def test_processors_are_whole_numbers(wrong: object) -> None:
    cores: list[Any] = [np.int64(0), wrong]
    with pytest.raises(CollplanError, match=r"cores\[1\] is .*; use the number of a processor"):
        places_on([0], cores)


def test_policies_differ_where_nodes_have_domains() -> None:
    places = places_on([0] * 6, range(8), numa_domains=2)
    assert [place.of("numa") for place in places] == [3, 3, 3, 7, 7, 7]
    assert [place.of("odd_even") for place in places] == [3, 7, 3, 7, 3, 7]
    assert places[0].of("bind") == 3, "what is no place of a thread is the default"


def test_ranks_leave_what_they_may_use_and_need_not() -> None:
    four = ("a", (0, 1, 2, 3))
    assert [place.of() for place in places_left([four, four, four])] == [3, 3, 3]
    assert all(place.own is None for place in places_left([four]))
    # Two threads of a core each: the second is free.
    siblings = [("a", (0, 8)), ("a", (1, 9))]
    assert [place.of() for place in places_left(siblings)] == [8, 9]
    # On another host the same numbers are other processors.
    elsewhere = [("a", (0, 1)), ("b", (0,))]
    assert [place.of() for place in places_left(elsewhere)] == [1, None]
    assert [place.n_spare for place in places_left(elsewhere)] == [0, 0]
    # Nodes that share a host share what is free.
    assert [place.n_spare for place in places_left([four, four], [0, 1])] == [1, 1]
    assert [place.n_spare for place in places_left([four, four], [0, 0])] == [2, 2]
    # Nobody knows what ranks leave that may use some of each other's.
    mixed = [("a", (0, 1)), ("a", (1, 2))]
    assert [place.of() for place in places_left(mixed)] == [None, None]


@pytest.mark.ranks(2)
def test_a_rank_finds_its_place_and_stays_where_it_is(comm: object) -> None:
    before = affinity()
    first = min(before)
    found = find_places(comm, [0, 0], [first, first, first])
    assert found == ProgressPlaces(first, {"numa": first, "odd_even": first}, 1)
    assert affinity() == before
    with pytest.raises(CollplanError, match="processor 99999"):
        find_places(comm, [0, 0], [first, first, 99999])
    assert affinity() == before
    assert os.sched_getaffinity(0) == before
