"""Standard input of rank 0, which is that of the starter only on the starter's host."""

from __future__ import annotations

import os
import platform

import pytest

from collplan.executors.mpi.launch import standard_input
from collplan.executors.mpi.launch.standard_input import INPUT, offer_input, take_input


@pytest.mark.quick
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
    there = os.open

    def opened(path: str, flags: int) -> int:
        return os.dup(reader) if path.endswith("/fd/0") else there(path, flags)

    with monkeypatch.context() as patches:
        patches.setattr(standard_input, "launcher_rank", lambda: rank)
        patches.setattr(os, "dup2", lambda source, _: read.append(os.read(source, 9)))
        patches.setattr(os, "open", opened)
        patches.setenv(INPUT, offer_input().replace(platform.node(), host))
        take_input()
        assert INPUT not in os.environ
    os.close(reader)
    assert read == [expected]
