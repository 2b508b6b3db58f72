"""The helper of a node: it ends with its ranks, and sleeps until something happens."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collplan.preload import connections, helper
from collplan.preload.connections import WORKING, Connections
from collplan.preload.helper import KINDS, Helper, counts_told
from collplan.tables.table import save_table
from tables_everywhere import planning_table

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


@pytest.fixture
def connected() -> Iterator[Connections]:
    """Return connections without any rank."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        yield Connections(listener)


def watching(connected: Connections, parent: int) -> threading.Thread:
    def watch() -> None:
        with suppress(Ended):
            connected.watch(parent)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_it_ends_with_the_last_rank_and_wakes_only_for_events(
    polls: list[Any], connected: Connections
) -> None:
    ranks = [subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) for _ in range(2)]
    ends = [socket.socketpair() for _ in ranks]
    for (one, _), rank in zip(ends, ranks, strict=True):
        connected.sockets[one] = connections._descriptor_of(rank.pid)
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


def test_before_the_first_rank_it_ends_with_its_parent(
    polls: list[Any], connected: Connections
) -> None:
    parent = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    thread = watching(connected, parent.pid)
    parent.communicate(b"\n")
    thread.join(60)
    assert not thread.is_alive()
    assert len(polls) == 1


def test_nobody_is_waited_for_without_end(
    polls: list[Any], connected: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_PATIENCE_S", 0.01)
    thread = watching(connected, os.getpid())
    thread.join(60)
    assert not thread.is_alive()


def ends_silent(rank: socket.socket) -> bool:
    """Read all signs of life; return whether they end."""
    with suppress(TimeoutError):
        for _ in range(1000):
            rank.recv(16)
        return False
    return True


def test_ranks_that_wait_get_signs_of_life_while_the_helper_gets_on(
    connected: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SIGN_S", 0.001)
    monkeypatch.setattr(connections, "_PROGRESS_S", 0.0)
    pairs = [socket.socketpair() for _ in range(3)]
    asked, waiting, idle = (rank for rank, _ in pairs)
    connected.sockets = {end: -1 for _, end in pairs}
    waiting.sendall(b"request")
    connected._set_working(pairs[0][1])
    threading.Thread(target=connected.send_signs, daemon=True).start()
    sign = struct.pack("<qq", WORKING, 0)
    for rank in (asked, waiting):
        rank.settimeout(60)
        assert rank.recv(16) == sign
    # A helper that does not get on gives no signs, and one that is done neither.
    for working, least_s in ((pairs[0][1], 1e9), (None, 0.0)):
        monkeypatch.setattr(connections, "_PROGRESS_S", least_s)
        connected._set_working(working)
        connected._set_working(working)
        asked.settimeout(0.02)
        assert ends_silent(asked)
    idle.setblocking(False)
    with pytest.raises(BlockingIOError):
        idle.recv(16)
    for pair in pairs:
        for one in pair:
            one.close()


def test_ranks_tell_the_counts_that_they_know() -> None:
    call: Any = SimpleNamespace(kind="alltoallv", root=0)
    rows = [[1, 1, -1, 10, 20, 30, 40], [1, 0, -1, 50, 60, 0, 0]]
    first, second = counts_told(np.array(rows, dtype=np.int64).tobytes(), call, 2)
    assert np.array_equal(first.counts, [10, 20])
    assert np.array_equal(first.received, [30, 40])
    assert np.array_equal(second.counts, [50, 60])
    assert second.received is None
    call = SimpleNamespace(kind="gatherv", root=1)
    rows = [[0, 0, 0, 0, 0, 0, 0], [1, 0, 8, 0, 8, 0, 0]]
    first, second = counts_told(np.array(rows, dtype=np.int64).tobytes(), call, 2)
    assert (first.counts, first.own) == (None, 0)
    assert (second.own, second.root) == (8, 1)


def test_a_rank_is_told_what_the_table_has_and_where_it_may_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = planning_table(3)
    save_table(table, tmp_path / "table.json")
    monkeypatch.setenv(helper.TABLE, str(tmp_path / "table.json"))
    monkeypatch.setenv(helper.FORCE, "1")

    answering = Helper()

    def hello(handle_bytes: int) -> tuple[int, bytes]:
        sizes = handle_bytes, helper.STATUS_BYTES
        words = struct.pack("<8q", os.getpid(), 0, 1, 1, 0, *sizes, 2**20)
        return answering.answer(helper.HELLO, words + b"MPICH Version: 4.2")

    status, text = hello(helper.HANDLE_BYTES)
    assert status == 0, text
    assert hello(helper.HANDLE_BYTES) == (status, text)  # every rank of the node is told the same
    head = struct.unpack_from("<4qQQ", text)
    assert head[1] == helper.MAX_PLANS
    swept = {sweep.collective for sweep in table.sweeps if sweep.complete}
    kinds = [kind for number, kind in enumerate(KINDS) if head[-2] >> number & 1]
    assert swept <= set(kinds) <= {*swept, *(f"{kind}v" for kind in swept), "reduce_scatter"}
    facts = np.frombuffer(text[48:], np.uint64)
    assert len(facts) == helper.N_FACTS
    bits = np.unpackbits(facts[helper.MASK_AT :].view(np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits)) == os.sched_getaffinity(0)
    status, text = hello(helper.HANDLE_BYTES + 1)
    assert status == 1
    assert b"they are different libraries" in text


def test_statistics_say_how_many_ranks_share_a_core() -> None:
    asked = Helper()
    facts = np.zeros((3, helper.N_FACTS), np.uint64)
    facts[:, helper.MASK_AT] = 0b11
    assert asked.statistics("0").ranks_per_core == 1
    status, _ = asked.answer(helper.COMM, struct.pack("<qq", 0, len(facts)) + facts.tobytes())
    assert status == 0
    assert asked.statistics("0").ranks_per_core == 1.5
