"""Memory of the ranks of a node: what a rank has written is read."""

from __future__ import annotations

import os
import struct

import pytest

from collplan.specs import CollplanError
from collplan.watch.area import (
    INSIDE,
    LEFT,
    N_CALLS,
    RANK_BYTES,
    STARTED,
    WORLD,
    open_area,
)
from watched_ranks import CAN_TELL_AT, FINALIZED_AT, MISMATCH_AT, Crew, RankRecorder


def test_a_record_has_what_was_written() -> None:
    crew = Crew(2)
    crew.call(1, "allreduce", n_bytes=800, element="float64", op="sum")
    zero, one = crew.ranks()
    (call,) = one.calls
    assert (call.number, call.state, call.order, call.n_bytes) == (1, INSIDE, 1, 800)
    assert (call.name, call.element, call.op, call.site) == ("allreduce", "float64", "sum", 0)
    assert call.place.startswith("test_a_record_has_what_was_written (test_area.py:")
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
    crew.recorders[0].set_word(FINALIZED_AT, 1)
    assert [one.is_finalized for one in crew.ranks()] == [True, False]


def new_memory(n_ranks: int, nonce: int) -> int:
    """Create memory as the preloaded library does, and return its file descriptor."""
    descriptor = os.memfd_create("ranks")
    os.truncate(descriptor, n_ranks * RANK_BYTES)
    os.pwrite(descriptor, struct.pack("<q", nonce), n_ranks * RANK_BYTES)
    return descriptor


def test_memory_is_opened_by_its_number() -> None:
    descriptor = new_memory(2, 77)
    area = open_area(os.getpid(), descriptor, 77, 2)
    assert area.ranks() == []
    RankRecorder(area, 1)
    assert [one.rank for one in open_area(os.getpid(), descriptor, 77, 2).ranks()] == [1]
    assert len(area.memory) == 2 * RANK_BYTES
    with pytest.raises(CollplanError, match="is not the memory of the ranks"):
        open_area(os.getpid(), descriptor, 78, 2)
    os.close(descriptor)
    with pytest.raises(CollplanError, match="No such file"):
        open_area(os.getpid(), descriptor, 77, 2)


def test_ranks_get_answers_and_questions() -> None:
    crew = Crew(2)
    crew.recorders[1].set_word(MISMATCH_AT, 5)
    crew.recorders[1].set_word(CAN_TELL_AT, 1)
    before, asking = crew.ranks()
    crew.area.answer(asking)
    crew.area.ask(asking)
    zero, one = crew.ranks()
    assert (one.mismatch, one.answered, one.can_tell, one.asked, one.told) == (5, 5, True, 1, 0)
    assert zero == before
