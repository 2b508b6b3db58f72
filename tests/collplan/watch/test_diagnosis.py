"""Findings about calls that do not complete, of ranks that only exist in memory."""

from __future__ import annotations

import pytest

from collplan.watch.area import UNKNOWN, WORLD
from collplan.watch.diagnosis import difference_at, first_difference, hangs_of
from watched_ranks import Crew


def numbers(ranks: object) -> list[int]:
    return [one.rank for one in ranks]  # type: ignore[attr-defined]


def test_ranks_are_inside_missing_or_have_left() -> None:
    crew = Crew(4)
    crew.all_call("allreduce", n_bytes=8)
    crew.call(0, "bcast", returns=True)
    crew.call(1, "bcast")
    crew.call(2, "bcast")
    ranks = crew.ranks()
    (hang,) = hangs_of(ranks, [ranks[1]])
    assert (hang.comm.key, hang.order, hang.difference, hang.crossed) == (WORLD, 2, None, ())
    assert [one.rank.rank for one in hang.inside] == [1, 2]
    assert numbers(hang.missing) == [3]
    assert numbers(hang.passed) == [0]
    assert hang.n_elsewhere == 0


def test_the_first_call_of_a_communicator_that_does_not_complete_is_found() -> None:
    crew = Crew(3)
    crew.all_call("barrier")
    crew.call(0, "bcast", returns=True)
    crew.call(0, "reduce")
    crew.call(1, "bcast")
    ranks = crew.ranks()
    (hang,) = hangs_of(ranks, ranks[:2])
    assert hang.order == 2
    assert [one.rank.rank for one in hang.inside] == [1]
    assert (numbers(hang.missing), numbers(hang.passed)) == ([2], [0])


def test_ranks_that_wait_for_the_same_request_later_are_inside() -> None:
    crew = Crew(3)
    for rank in (0, 1):
        crew.call(rank, "Iallreduce", starts=True)
        crew.recorders[rank].wait(b"Wait")
    ranks = crew.ranks()
    (hang,) = hangs_of(ranks, [ranks[0]])
    assert [one.rank.rank for one in hang.inside] == [0, 1]
    assert (numbers(hang.missing), numbers(hang.passed)) == ([2], [])


def test_nothing_is_found_where_nobody_waits() -> None:
    crew = Crew(2)
    crew.all_call("allreduce")
    assert hangs_of(crew.ranks(), crew.ranks()) == []


@pytest.mark.parametrize(
    ("what", "one", "other"),
    [
        ("function", {"name": "bcast"}, {"name": "reduce"}),
        ("function", {"name": "bcast"}, {"name": "Ibcast"}),
        ("root", {"root": 0}, {"root": 1}),
        ("size", {"n_bytes": 8}, {"n_bytes": 16}),
        ("datatype", {"element": "float64"}, {"element": "int64"}),
        ("operation", {"op": "sum"}, {"op": "max"}),
    ],
)
def test_calls_that_differ_are_found(
    what: str, one: dict[str, object], other: dict[str, object]
) -> None:
    crew = Crew(3)
    for rank in range(3):
        fields = {"name": "bcast", **(other if rank == 2 else one)}
        crew.call(rank, returns=True, **fields)  # type: ignore[arg-type]
    found = difference_at(crew.ranks(), WORLD, 1)
    assert found is not None
    assert (found.what, found.order, len(found.calls)) == (what, 1, 3)


def test_what_is_unknown_on_a_rank_does_not_differ() -> None:
    crew = Crew(2)
    crew.call(0, "allreduce", n_bytes=UNKNOWN, element="", op="sum")
    crew.call(1, "allreduce", n_bytes=8, element="float32", op="")
    assert difference_at(crew.ranks(), WORLD, 1) is None


def test_the_earliest_difference_is_named_up_to_the_call() -> None:
    crew = Crew(2)
    for n_bytes in (8, 16, 24):
        crew.call(0, "bcast", n_bytes=8, returns=True)
        crew.call(1, "bcast", n_bytes=n_bytes, returns=True)
    found = first_difference(crew.ranks(), WORLD)
    assert found is not None
    assert found.order == 2
    assert first_difference(crew.ranks(), WORLD, up_to=1) is None


def test_calls_in_different_orders_on_two_communicators_are_crossed() -> None:
    crew = Crew(3)
    other = crew.comm(7, "comm_dup")
    crew.call(0, "barrier", comm=other)
    for rank in (1, 2):
        crew.call(rank, "barrier")
    ranks = crew.ranks()
    world, dup = hangs_of(ranks, ranks)
    assert {(one.rank, late.rank, comm.key) for one, late, comm in world.crossed} == {
        (1, 0, 7),
        (2, 0, 7),
    }
    assert {(one.rank, late.rank, comm.key) for one, late, comm in dup.crossed} == {
        (0, 1, WORLD),
        (0, 2, WORLD),
    }


def test_a_rank_that_waits_elsewhere_for_a_third_one_is_not_crossed() -> None:
    crew = Crew(3)
    half = crew.comm(9, "comm_split", [1, 2])
    crew.call(0, "barrier")
    crew.call(1, "barrier", comm=half)
    ranks = crew.ranks()
    assert [hang.crossed for hang in hangs_of(ranks, ranks[:2])] == [(), ()]


def test_ranks_of_other_nodes_are_counted() -> None:
    crew = Crew(2)
    for rank, recorder in enumerate(crew.recorders):
        place = recorder.add_comm(20, 6, rank, "comm_split")
        assert place is not None
        crew.call(rank, "barrier", comm={rank: place})
    (hang,) = hangs_of(crew.ranks(), crew.ranks())
    assert hang.n_elsewhere == 4
