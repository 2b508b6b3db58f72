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
