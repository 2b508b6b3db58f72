"""Reports of measured runs beside their predictions."""

from __future__ import annotations

import pytest

from collplan.measure.phases import phase_times
from collplan.reports.measured import print_prediction


def test_the_table_shows_phases_and_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    phases = [
        phase_times("to", (1e-6, 5e-6), (0.0, 3e-6)),
        phase_times("fro", (2e-6, 2e-6), (4e-6, 6e-6)),
    ]
    report = {
        "predicted_s": 6e-6,
        "measured_s": 5e-6,
        "phases": phases,
        "recorded_makespans_s": [5e-6, 4e-6, 6e-6],
        "clock_error_s": 2e-6,
    }
    print_prediction(report)
    out = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "to 1 µs to 5 µs 4 µs 0 ns to 3 µs 3 µs -25.0%" in rows
    # Nothing was measured to take time, so there is nothing to compare with.
    assert "fro 2 µs to 2 µs 0 ns 4 µs to 6 µs 2 µs" in rows
    assert "whole 0 ns to 5 µs 5 µs 0 ns to 6 µs 6 µs +20.0%" in rows
    assert "of 3 recorded starts" in out
    assert "clocks of hosts agree within 2 µs" in out
