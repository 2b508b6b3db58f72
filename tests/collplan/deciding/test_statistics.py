"""Statistics of calls as text, and as a file for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from collplan.deciding import statistics as module
from collplan.deciding.statistics import FASTER, FILE, LOG, OBJECTS, Statistics, new_statistics
from collplan.executors.mpi.launch.environment import YIELDS


def test_variables_that_slow_calls_down_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = Statistics()
    statistics.row("bcast", "native", "no sweep of bcast", 4).calls = 1
    monkeypatch.delenv(YIELDS, raising=False)
    assert "yield" not in statistics.report()
    monkeypatch.setenv(YIELDS, "ONE TWO")
    assert statistics.report().endswith("set these variables yourself: ONE, TWO\n")


def test_a_run_on_shared_cores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(YIELDS, raising=False)
    crowded, statistics = Statistics(), Statistics()
    crowded.ranks_per_core = 1.5
    statistics.row("bcast", "native", "no sweep of bcast", 4).calls = 1
    assert "share" not in statistics.report()
    statistics.add(crowded)
    line = "collplan: 1.5 ranks share a core and take turns: times say little of ranks with cores"
    assert statistics.report().splitlines()[-1] == f"{line} of their own"


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


def test_statistics_say_what_ran_as_text_as_a_table_and_as_a_dict() -> None:
    from rich.console import Console

    statistics = Statistics()
    measured = {"planned": True, "native_s": 4e-3, "chosen_s": 1e-3}
    row = statistics.row("bcast", "chain", "won at 8 bytes", 4, 4096, **measured)
    again = statistics.row("bcast", "chain", "won at 8 bytes", 4, 16, **measured)
    assert again is row
    row.calls, row.seconds = 2, 3e-3
    statistics.row("scan", "native", "no sweep of scan", 4, 8)  # not called yet
    (found,) = statistics.as_dict()["rows"]
    assert (found["gain"], found["calls"], found["least_bytes"]) == (4.0, 2, 16)
    assert statistics.as_dict()["planned_calls"] == 2
    words = " ".join(str(statistics).splitlines()[1].split())
    # The gain in the table was not measured in this run.
    assert words == "bcast chain 4 16 to 4096 2 3 ms 1.5 ms won at 8 bytes"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(statistics)
    assert "4.00x" not in console.export_text()
    row.why = FASTER
    assert f"4.00x  {FASTER}" in str(statistics)


def test_statistics_tell_the_time_of_making_plans_and_where_they_are_slower() -> None:
    statistics = Statistics()
    assert "making" not in statistics.report()
    statistics.making_s = 0.25
    native = statistics.row("bcast", "native", "a plan takes time to make", 4, 64)
    by_plan = statistics.row("bcast", "chain", "won at 8 bytes", 4, 64, planned=True)
    native.calls, native.seconds = 2, 2e-3
    by_plan.calls, by_plan.seconds = 4, 4e-3
    assert "4 collectives by plans, 2 native; making plans took 250 ms" in statistics.report()
    assert "slower" not in statistics.report()
    assert "  1.00x  won at 8 bytes" in statistics.report()
    by_plan.seconds = 8e-3
    line = "won at 8 bytes; slower here: native took 1 ms"
    assert line in statistics.report()
    # Rows of several sizes are not comparable.
    statistics.row("bcast", "native", "a plan takes time to make", 4, 4096)
    assert "slower" not in statistics.report()
