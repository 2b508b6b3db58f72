"""Limits of ``collplan run`` on the ranks that it starts."""

from __future__ import annotations

import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch import jobs
from collplan.executors.mpi.launch.environment import n_cores
from command_line import CommandLine

CROWD = 8 * n_cores() + 1


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of ranks that would have been started."""
    numbers: list[int] = []

    def note(_program: object, n_ranks: int, **_options: Any) -> int:
        numbers.append(n_ranks)
        return 0

    monkeypatch.setattr(jobs, "relaunch", note)
    return numbers


@pytest.mark.parametrize("is_plan", [False, True])
def test_more_than_8_ranks_per_core_have_to_be_asked_for(
    collplan: CommandLine, started: list[int], is_plan: bool
) -> None:
    changes: dict[str, Any] = {"machine": {"ranks_per_node": CROWD}}
    source = collplan.compile(**changes) if is_plan else collplan.write_spec(**changes)
    refusal = collplan("run", source).error()
    assert refusal.startswith(f"-n: {CROWD} ranks would be 9 on each of {n_cores()} cores")
    for way_out in ("-n,", "'collplan emulate'", "--oversubscribe"):
        assert way_out in refusal
    assert started == []
    assert collplan("run", source, "--oversubscribe").status == 0
    if not is_plan:
        assert collplan("run", source, "-n", CROWD - 1).status == 0
    assert started == [CROWD, CROWD - 1][: 1 if is_plan else 2]


def test_a_cluster_of_another_size_is_refused_before_it_is_compiled(
    collplan: CommandLine, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_plan(*_: object, **__: object) -> None:
        raise AssertionError("a plan for 60,000 ranks takes minutes")

    monkeypatch.setattr("collplan.planner.compile_plan", compile_plan)
    spec = collplan.write_spec(machine={"nodes": 600, "ranks_per_node": 100})
    assert "-n: 60000 ranks would be" in collplan("run", spec).error()
    assert started == []


def test_ranks_that_would_take_more_memory_than_there_is_are_not_started(
    collplan: CommandLine, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "free_machine_bytes", lambda: 10**9)
    spec = collplan.write_spec(collective={"kind": "allreduce", "count": 2**25})
    refusal = collplan("run", spec).error()
    assert refusal.startswith("-n: 4 ranks need about 4.")
    assert "GB of memory, 1 GB are free here; start fewer with -n" in refusal
    assert started == []
    assert collplan("run", collplan.write_spec()).status == 0
    assert started == [4]


def test_no_command_starts_ranks_without_memory_or_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def allowed(_what: int) -> tuple[int, int]:
        return 20, 20

    monkeypatch.setattr(jobs, "free_machine_bytes", lambda: 10**9)
    with pytest.raises(LaunchError, match=r"-n: 100 ranks need about 8\.39 GB of memory"):
        jobs.relaunch(["true"], 100)
    monkeypatch.setattr(resource, "getrlimit", allowed)
    with pytest.raises(LaunchError, match=r"2 ranks need about 40 open files, 20 are allowed"):
        jobs.relaunch(["true"], 2)


def test_a_soft_limit_of_open_files_is_raised_for_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 500))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    jobs.check_room(2)
    jobs.allow_files(2)
    assert limits == [(40, 500)]


def test_jobs_that_a_thread_starts_leave_the_handling_of_signals_alone() -> None:
    """Python lets only the main thread handle signals."""
    before = signal.getsignal(signal.SIGTERM)

    def inside() -> object:
        with jobs._terminated_as_interrupt():
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor() as pool:
        assert pool.submit(inside).result() is before
    assert inside() is not before
    assert signal.getsignal(signal.SIGTERM) is before
