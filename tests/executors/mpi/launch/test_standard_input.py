"""Standard input of rank 0, which is that of the starter only on the starter's host."""

from __future__ import annotations

import os
import platform

import pytest

from collplan.executors.mpi.launch import standard_input
from collplan.executors.mpi.launch.standard_input import INPUT, offer_input, take_input


@pytest.mark.parametrize(
    ("host", "rank", "expected"),
    [(platform.node(), 0, b"words"), (platform.node(), 1, b""), ("another host", 0, b"")],
)
def test_a_rank_on_another_host_reads_no_process_of_the_same_number(
    host: str, rank: int, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    reader, writer = os.pipe()
    os.write(writer, b"words")
    os.close(writer)
    monkeypatch.setattr(standard_input, "launcher_rank", lambda: rank)
    monkeypatch.setattr(os, "dup2", lambda source, _: read.append(os.read(source, 9)))
    there = os.open

    def opened(path: str, flags: int) -> int:
        return reader if path.endswith("/fd/0") else there(path, flags)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setenv(INPUT, offer_input().replace(platform.node(), host))
    take_input()
    assert read == [expected]
    assert INPUT not in os.environ
