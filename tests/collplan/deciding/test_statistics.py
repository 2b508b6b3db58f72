"""Statistics of calls as text, and as a file for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collplan.deciding import statistics as module
from collplan.deciding.statistics import FILE, LOG, OBJECTS, Statistics, new_statistics
from collplan.executors.mpi.launch.environment import YIELDS


def test_variables_that_slow_calls_down_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = Statistics()
    statistics.row("bcast", "native", "no sweep of bcast", 4).calls = 1
    monkeypatch.delenv(YIELDS, raising=False)
    assert "yield" not in statistics.report()
    monkeypatch.setenv(YIELDS, "ONE TWO")
    assert statistics.report().endswith("set these variables yourself: ONE, TWO\n")


def test_a_plan_that_is_slower_than_native_calls_of_its_size_is_named() -> None:
    statistics = Statistics(int.bit_length)

    def count(why: str, *key: str | int, call_s: float, planned: bool = False) -> None:
        kind, ranks, n_bytes = key
        ran = "ring" if planned else "native"
        row = statistics.row(str(kind), ran, why, int(ranks), int(n_bytes), planned=planned)
        row.calls, row.seconds = 2, 2 * call_s

    count("slow", "bcast", 4, 64, call_s=3.0, planned=True)
    count("fast", "bcast", 4, 128, call_s=3.0, planned=True)
    count("other size", "bcast", 4, 256, call_s=3.0, planned=True)
    count("other ranks", "bcast", 8, 64, call_s=3.0, planned=True)
    count("other kind", "reduce", 4, 64, call_s=3.0, planned=True)
    count("start", "Ibcast", 4, 64, call_s=3.0, planned=True)
    count("before", "Ibcast", 4, 64, call_s=2.0)
    count("before", "bcast", 4, 64, call_s=2.0)
    count("before", "bcast", 4, 128, call_s=2.8)
    told = [line for line in str(statistics).splitlines() if "slower here" in line]
    assert [line.partition("slow;")[2] for line in told] == [" slower here: native took 2 s"]


def test_a_file_has_a_row_for_each_function_plan_and_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "log.json"
    monkeypatch.setenv(LOG, str(path))
    families = [new_statistics(), new_statistics()]
    for kind, ran, why, n_bytes in (
        ("Iallreduce", "ring", "won at 64 bytes", 64),
        ("Iallreduce", "ring", "won at 64 bytes", 65),
        ("allreduce", "native", OBJECTS, 0),
    ):
        for one in families:
            row = one.row(kind, ran, why, 4, n_bytes, planned=ran != "native")
            row.calls, row.seconds = 3, 0.5 + n_bytes
    row = families[0].row("Reduce_scatter_init", "native", "", 4, 8)
    row.calls = 1
    monkeypatch.chdir("/")
    module.deliver(families)
    calls = json.loads(path.read_text())["calls"]
    names = "call", "ran", "ranks", "bytes", "calls", "seconds", "why"
    assert [tuple(one) for one in calls] == [names] * 4
    assert [tuple(one.values()) for one in calls] == [
        ("MPI_Iallreduce", "ring", 4, 65, 6, 131.0, "won at 64 bytes"),
        ("MPI_Iallreduce", "ring", 4, 64, 6, 129.0, "won at 64 bytes"),
        ("allreduce", "native", 4, 0, 6, 1.0, "objects"),
        ("MPI_Reduce_scatter_init", "native", 4, 8, 1, 0.0, None),
    ]


def test_a_file_that_cannot_be_written_gives_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LOG, str(tmp_path / "nowhere" / "log.json"))
    monkeypatch.delenv(FILE, raising=False)
    statistics = new_statistics()
    statistics.row("bcast", "native", "", 4).calls = 1
    statistics.deliver()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"collplan: COLLPLAN_LOG: {tmp_path}/nowhere/log.json: cannot be written"
    )
