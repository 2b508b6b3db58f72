"""Statistics of calls as text."""

from __future__ import annotations

import pytest

from collplan.dropin.statistics import Statistics
from collplan.executors.mpi.launch.environment import YIELDS


def test_variables_that_slow_calls_down_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = Statistics()
    statistics.row("bcast", "native", "no sweep of bcast", 4).calls = 1
    monkeypatch.delenv(YIELDS, raising=False)
    assert "yield" not in statistics.report()
    monkeypatch.setenv(YIELDS, "ONE TWO")
    assert statistics.report().endswith("set these variables yourself: ONE, TWO\n")


def test_a_plan_that_is_slower_than_native_calls_of_its_size_is_named() -> None:
    statistics = Statistics(by_size=True)

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
    count("before", "bcast", 4, 64, call_s=2.0)
    count("before", "bcast", 4, 128, call_s=2.8)
    told = [line for line in str(statistics).splitlines() if "slower here" in line]
    assert [line.partition("slow;")[2] for line in told] == [" slower here: native took 2 s"]
