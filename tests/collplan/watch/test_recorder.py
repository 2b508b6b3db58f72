"""Records of Python ranks: what is written is read."""

from __future__ import annotations

import os
import threading
import time

from collplan.watch.area import (
    INSIDE,
    LEFT,
    N_CALLS,
    N_COMMS,
    RANK_BYTES,
    STARTED,
    WORLD,
    Area,
    new_memory,
    open_area,
)
from collplan.watch.recorder import CallRecorder
from watched_ranks import Crew


def test_a_record_has_what_was_written() -> None:
    crew = Crew(2)
    crew.call(1, "allreduce", n_bytes=800, element="float64", op="sum")
    zero, one = crew.ranks()
    (call,) = one.calls
    assert (call.number, call.state, call.order, call.n_bytes) == (1, INSIDE, 1, 800)
    assert (call.name, call.element, call.op, call.site) == ("allreduce", "float64", "sum", 0)
    # The caller of a method of a drop-in, for which `Crew.call` stands.
    assert call.place.startswith("test_a_record_has_what_was_written (test_recorder.py:")
    assert one.inside == (call,)
    member = one.member(WORLD)
    assert member is not None
    assert (member.size, member.rank, member.n_calls) == (2, 1, 1)
    assert (zero.n_calls, zero.calls, zero.is_finalized) == (0, (), False)


def test_the_latest_calls_are_kept_in_their_order() -> None:
    crew = Crew(1 + 1)
    for _ in range(N_CALLS + 5):
        crew.call(0, "barrier", returns=True)
    crew.call(0, "Ibarrier", starts=True)
    calls = crew.ranks()[0].calls
    assert [call.number for call in calls] == list(range(7, N_CALLS + 7))
    assert {call.state for call in calls[:-1]} == {LEFT}
    assert calls[-1].state == STARTED
    assert crew.ranks()[0].call_at(WORLD, 1) is None
    assert crew.ranks()[0].call_at(WORLD, 7) == calls[0]


def test_the_end_of_a_rank_is_recorded() -> None:
    crew = Crew(2)
    crew.recorders[0].end()
    assert [one.is_finalized for one in crew.ranks()] == [True, False]


def test_places_of_communicators_are_used_again_and_keys_differ() -> None:
    (recorder, _) = Crew(2).recorders
    places = [recorder.add_comm(50, 2, 0, "comm_dup") for _ in range(N_COMMS - 1)]
    assert [recorder.key_of(one) for one in places if one is not None] == list(range(50, 113))
    assert recorder.add_comm(1000, 2, 0, "comm_dup") is None
    assert places[3] is not None
    recorder.free_comm(places[3])
    assert recorder.add_comm(53, 2, 0, "comm_dup") == places[3]


def test_a_communicator_of_one_rank_needs_no_place() -> None:
    assert Crew(2).recorders[0].add_comm(50, 1, 0, "comm_split") is None


def test_memory_is_opened_by_its_number() -> None:
    descriptor = new_memory(2, 77)
    area = open_area(os.getpid(), descriptor, 77, 2)
    CallRecorder(area, 1, 5)
    assert [one.rank for one in open_area(os.getpid(), descriptor, 77, 2).ranks()] == [5]
    assert len(area.memory) == 2 * RANK_BYTES
    os.close(descriptor)


def test_a_checking_rank_waits_for_the_report_of_its_call() -> None:
    crew = Crew(2)
    checking = CallRecorder(crew.area, 1, 1, is_checking=True)
    place = checking.add_comm(WORLD, 2, 1, "")
    assert place is not None
    crew.call(0, "barrier")
    thread = threading.Thread(target=checking.enter, args=(place, b"bcast", 0, 8, b"", b""))
    thread.start()
    end_s = time.monotonic() + 60
    while not crew.ranks()[1].mismatch and time.monotonic() < end_s:
        time.sleep(1e-3)
    assert crew.ranks()[1].mismatch == 1
    crew.area.answer(1)
    thread.join(60)
    assert not thread.is_alive()
    assert crew.ranks()[1].answered == 1


def test_a_call_that_is_taken_back_is_not_counted() -> None:
    crew = Crew(2)
    crew.call(0, "bcast", returns=True)
    crew.recorders[0].take_back(crew.world[0])
    member = crew.ranks()[0].member(WORLD)
    assert member is not None
    assert member.n_calls == 0
    crew.call(0, "bcast", returns=True)
    assert crew.ranks()[0].calls[-1].order == 1


def test_an_area_has_only_ranks_that_have_begun() -> None:
    descriptor = new_memory(3, 1)
    area: Area = open_area(os.getpid(), descriptor, 1, 3)
    assert area.ranks() == []
    os.close(descriptor)
