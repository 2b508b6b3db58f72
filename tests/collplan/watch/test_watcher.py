"""The watcher: what it reports, when, and how often, of ranks that only exist in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

import pytest

from collplan.watch import watcher
from collplan.watch.area import ASKED_AT, HEAD, PLACE_BYTES, RANK_BYTES
from collplan.watch.options import WatchOptions, of_words
from collplan.watch.watcher import MOST_REPORTS, Watcher
from watched_ranks import CAN_TELL_AT, MISMATCH_AT, Crew


class Written:
    """Texts that a watcher has written."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, pids: Sequence[int], text: str) -> None:
        """Keep a text."""
        assert pids
        self.texts.append(text)


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "SAMPLE_S", 0.01)


def watcher_of(crew: Crew, seconds: float, *, check: bool = False) -> tuple[Watcher, Written]:
    written = Written()
    options = WatchOptions(seconds, is_checking=check)
    return Watcher(crew.area, options, write=written), written


def living(n_ranks: int) -> Crew:
    """Return ranks whose processes live: this one and its parents."""
    pids = [os.getpid(), os.getppid(), 1, 2]
    return Crew(n_ranks, pids[:n_ranks])


def test_a_call_is_reported_once_after_the_time_and_said_to_complete() -> None:
    crew = living(3)
    watcher, written = watcher_of(crew, 10.0)
    for rank in (0, 1):
        crew.call(rank, "allreduce", n_bytes=8, element="float64", op="sum")
    for now_s in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0):
        watcher.look(crew.ranks(), now_s)
    assert written.texts == []
    for now_s in (10.0, 12.0, 15.0):
        watcher.look(crew.ranks(), now_s)
    (text,) = written.texts
    lines = text.splitlines()
    assert lines[0] == (
        "collplan: 2 of the 3 ranks of MPI_COMM_WORLD have waited 10 s in call 1 of this "
        "communicator:"
    )
    assert lines[1].startswith(
        "collplan:   ranks 0 and 1 wait in MPI_Allreduce of 8 bytes, called in test_a_call_is_"
    )
    assert lines[2].startswith("collplan:   rank 2 has not called it: it ")
    assert lines[2].endswith("it has called no collective in 10 s")
    for rank in (0, 1):
        crew.leave(rank)
    crew.call(2, "allreduce", returns=True)
    for rank in (0, 1):
        crew.call(rank, "barrier", returns=True)
    watcher.look(crew.ranks(), 20.0)
    assert written.texts[1:] == [
        "collplan: call 1, which was reported, has completed after 20 s: the program goes on\n"
    ]
    # From now on, it is more patient.
    crew.call(0, "barrier")
    for now_s in (21.0, 26.0, 31.0, 36.0, 41.0, 46.0, 51.0, 56.0, 60.0):
        watcher.look(crew.ranks(), now_s)
    assert len(written.texts) == 2
    watcher.look(crew.ranks(), 61.5)
    assert len(written.texts) == 3


def test_ranks_that_go_on_are_not_reported() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 5.0)
    for now_s in range(0, 60, 3):
        crew.call(0, "allreduce")
        watcher.look(crew.ranks(), float(now_s))
    assert written.texts == []


def test_zero_switches_reports_off() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 0.0)
    crew.call(0, "barrier")
    for now_s in range(0, 400, 4):
        watcher.look(crew.ranks(), float(now_s))
    assert written.texts == []
    assert not WatchOptions().is_on


def test_a_time_in_which_the_watcher_was_stopped_does_not_count() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 30.0)
    crew.call(0, "barrier")
    watcher.look(crew.ranks(), 0.0)
    watcher.look(crew.ranks(), 500.0)
    assert written.texts == []
    for now_s in range(501, 535, 4):
        watcher.look(crew.ranks(), float(now_s))
    assert len(written.texts) == 1


def test_ranks_that_have_ended_inside_a_call_are_not_reported() -> None:
    crew = Crew(2)  # no such processes
    watcher, written = watcher_of(crew, 1.0)
    crew.call(0, "barrier")
    for now_s in (0.0, 1.0, 2.0, 3.0):
        watcher.look(crew.ranks(), now_s)
    assert written.texts == []


def test_the_number_of_reports_is_limited() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 1.0)
    now_s = 0.0
    for _ in range(3 * MOST_REPORTS):
        crew.call(0, "barrier")
        for _ in range(2):
            watcher.look(crew.ranks(), now_s)
            now_s += 1.0
    assert len(written.texts) == MOST_REPORTS


def test_a_difference_is_reported_when_a_rank_asks_for_it_and_only_once() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 0.0, check=True)
    crew.call(0, "bcast", root=0, n_bytes=8)
    crew.call(1, "bcast", root=1, n_bytes=8)
    for rank in (0, 1):
        _ask(crew, rank)
        watcher.look(crew.ranks(), 0.0)
    (text,) = written.texts
    assert text.startswith("collplan: mismatch of the root in call 1 of MPI_COMM_WORLD: root 0 in ")
    assert [one.answered for one in crew.ranks()] == [1, 1]


def _ask(crew: Crew, rank: int) -> None:
    crew.recorders[rank].set_word(MISMATCH_AT, 1)


def test_crossed_calls_are_reported_after_a_second_if_calls_are_compared() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 0.0, check=True)
    other = crew.comm(7, "comm_dup")
    crew.call(0, "barrier", comm=other)
    crew.call(1, "barrier")
    for now_s in (0.0, 0.5, 1.1, 2.0, 3.0):
        watcher.look(crew.ranks(), now_s)
    (text,) = written.texts
    assert (
        "mismatch of the order: on this communicator, rank 1 must wait for rank 0; on the "
        "communicator that MPI_Comm_dup made, rank 0 must wait for rank 1"
    ) in text


def test_python_programs_are_asked_where_they_are() -> None:
    crew = living(2)
    watcher, written = watcher_of(crew, 1.0)
    crew.call(0, "barrier")
    for recorder in crew.recorders:
        recorder.set_word(CAN_TELL_AT, 1)
    thread = threading.Thread(target=_answer, args=(crew, "solve (app.py:7)"))
    thread.start()
    for now_s in (0.0, 1.0):
        watcher.look(crew.ranks(), now_s)
    thread.join(60)
    (text,) = written.texts
    assert ", at solve (app.py:7); it has called no collective in 1 s" in text


def _answer(crew: Crew, place: str) -> None:
    """Answer for all ranks, when they are asked, as the preloaded library does."""
    end_s = time.monotonic() + 60
    while any(one.told == one.asked for one in crew.ranks()) and time.monotonic() < end_s:
        time.sleep(1e-3)
    for rank, one in enumerate(crew.ranks()):
        at = rank * RANK_BYTES + HEAD.size - PLACE_BYTES
        crew.area.memory[at : at + len(place)] = place.encode()
        crew.recorders[rank].set_word(ASKED_AT + 8, one.asked)


def test_options_survive_a_command_line() -> None:
    for one in (WatchOptions(), WatchOptions(2.5, is_checking=True)):
        assert of_words(*one.words()) == one
