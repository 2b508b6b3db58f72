"""The helper of a node: it ends with its ranks, and sleeps until something happens."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

from collplan.dropin.config import parse_native_calls
from collplan.preload import helper
from collplan.specs.errors import CollplanError

SLEEPER = [sys.executable, "-c", "input()"]


class Ended(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the time limits of all waits; the process does not end."""
    limits: list[Any] = []

    class Poll:
        def __init__(self) -> None:
            self._poll = made()

        def register(self, *what: int) -> None:
            self._poll.register(*what)

        def poll(self, limit: float | None) -> list[tuple[int, int]]:
            limits.append(limit)
            return self._poll.poll(limit)

    def end(_status: int) -> None:
        raise Ended

    made = select.poll
    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(os, "_exit", end)
    return limits


def watching(connected: helper._Connected, parent: int) -> threading.Thread:
    def watch() -> None:
        with suppress(Ended):
            connected.watch(parent)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_it_ends_with_the_last_rank_and_wakes_only_for_events(polls: list[Any]) -> None:
    ranks = [subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) for _ in range(2)]
    connected = helper._Connected()
    ends = [socket.socketpair() for _ in ranks]
    for (one, _), rank in zip(ends, ranks, strict=True):
        connected.sockets[one] = helper._descriptor_of(rank.pid)
    connected._has_begun = True
    thread = watching(connected, os.getpid())
    for rank in ranks:
        assert thread.is_alive()
        rank.communicate(b"\n")
    thread.join(60)
    assert not thread.is_alive()
    assert set(polls) == {None}
    assert len(polls) <= 3
    for pair in ends:
        for one in pair:
            one.close()


@pytest.mark.parametrize("text", ["abc", "-1", "9" * 20, ""])
def test_a_number_of_native_calls_that_is_none_names_its_variable(
    text: str,
) -> None:
    with pytest.raises(CollplanError, match=r"COLLPLAN_NATIVE_CALLS: .* give 0 to 1000000000"):
        parse_native_calls(text)


def test_before_the_first_rank_it_ends_with_its_parent(polls: list[Any]) -> None:
    parent = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    thread = watching(helper._Connected(), parent.pid)
    parent.communicate(b"\n")
    thread.join(60)
    assert not thread.is_alive()
    assert len(polls) == 1


def test_nobody_is_waited_for_without_end(
    polls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "_PATIENCE_S", 0.01)
    thread = watching(helper._Connected(), os.getpid())
    thread.join(60)
    assert not thread.is_alive()
