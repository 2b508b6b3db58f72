"""Processors, processes and waits of this machine, as a rank sees them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mpi4py import MPI

from collplan.executors.mpi.errors import name_ranks
from collplan.executors.mpi.host.cores import (
    Peers,
    host,
    pin_thread,
    scheduling_group,
    usable_processors,
)
from collplan.executors.mpi.host.processes import affinity, stat_of
from collplan.executors.mpi.host.waiting import EAGER_POLLS, Wait, sleep_between_polls
from collplan.specs.errors import CollplanError


@pytest.mark.quick
@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([4], "rank 4"),
        ([1, 0], "ranks 0 and 1"),
        ([5, 1, 2, 3, 3], "ranks 1 to 3 and 5"),
        (range(0, 20, 2), "ranks 0, 2, 4, 6, 8, 10 and 4 more"),
    ],
)
def test_ranks_are_named_as_ranges(ranks: list[int], words: str) -> None:
    assert name_ranks(ranks) == words


def test_a_wait_counts_no_time_in_which_the_process_was_stopped() -> None:
    wait = Wait(longest_step_s=0.01)
    wait.begin()
    time.sleep(0.05)
    wait.look()
    assert wait.waited_s == 0.01
    wait.begin()
    assert wait.waited_s == 0.0


def test_pauses_become_sleeps_that_grow_up_to_a_limit() -> None:
    wait = Wait(longest_sleep_s=0.002)
    for _ in range(EAGER_POLLS):
        wait.pause()
    wait.waited_s = 10.0
    begin = time.monotonic()
    wait.pause()
    assert time.monotonic() - begin >= 0.002
    assert sleep_between_polls(1.0) == 0.0
    assert 0 < sleep_between_polls(2.0) <= sleep_between_polls(100.0) < 1e-3


@pytest.mark.quick
@pytest.mark.parametrize(
    ("cgroups", "enabled", "autogroup", "name"),
    [
        ("4:cpu,cpuacct:/batch/job7\n0::/\n", "1\n", "/autogroup-12 nice 0\n", "batch/job7"),
        ("0::/\n", "1\n", "/autogroup-12 nice 0\n", "/autogroup-12"),
        ("0::/\n", "0\n", "/autogroup-12 nice 0\n", ""),
        ("0::/\n", "1\n", "", ""),
        ("0::/\n", None, None, ""),
        ("4:cpu:/batch\n", None, None, "batch"),
    ],
)
def test_a_scheduling_group_has_the_name_that_the_system_gives(
    tmp_path: Path, cgroups: str, enabled: str | None, autogroup: str | None, name: str
) -> None:
    for file, text in {
        "self/cgroup": cgroups,
        "sys/kernel/sched_autogroup_enabled": enabled,
        "self/autogroup": autogroup,
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (tmp_path / file).write_text(text)
    assert scheduling_group(tmp_path) == name


def test_a_process_is_known_by_its_beginning() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    parent, beginning = stat_of(child.pid)
    assert parent == os.getpid()
    assert stat_of(os.getpid())[1] <= beginning
    child.communicate(b"\n")
    assert stat_of(child.pid)[1] != beginning


@pytest.mark.ranks(1, 3)
def test_peers_live_until_they_end(comm: MPI.Intracomm) -> None:
    peers = Peers(comm, lambda request: request.Wait())
    assert [peers.pid(rank) for rank in range(comm.size)] == comm.allgather(os.getpid())
    assert peers.ended() == []
    assert len(set(comm.allgather(host()))) == 1


@pytest.mark.ranks(1, 2)
def test_a_thread_is_kept_on_a_processor_of_the_node(comm: MPI.Intracomm) -> None:
    before = affinity()
    usable = usable_processors(comm)
    assert set(before) <= set(usable)
    try:
        pin_thread(min(before))
        assert set(affinity()) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
    with pytest.raises(CollplanError, match="processor 100000: the thread cannot be kept there"):
        pin_thread(100_000)
