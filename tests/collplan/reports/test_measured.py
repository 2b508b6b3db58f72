"""Reports of measured runs beside their predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from collplan.executors.cost import simulate
from collplan.measure.phases import compare_phases, phase_times
from collplan.measure.task_times import TaskTimes
from collplan.planner import compile_plan
from collplan.reports.measured import (
    plot_rows,
    prediction_report,
    print_prediction,
    print_program_run,
    print_run,
    print_statistics,
    write_both,
)
from drawn_figures import keep_figures
from oracle import make_spec

RUN: dict[str, Any] = {
    "ranks": 3,
    "bytes": 2048,
    "library": "MPICH 5",
    "correct": True,
    "checked_against": "numpy",
    "ratio": 0.75,
    "ratio_quartiles": [0.5, 1.25],
    "repetitions": 7,
    "median_s": 3e-6,
    "quartiles_s": [2e-6, 5e-6],
    "min_s": 1e-6,
    "native_median_s": 4e-6,
    "native_quartiles_s": [3e-6, 8e-6],
    "native_min_s": 2.5e-6,
    "steps_median_s": 6e-6,
    "steps_quartiles_s": [5e-6, 9e-6],
    "steps_min_s": 4.5e-6,
    "ratio_to_steps": 0.5,
}


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the output, with single spaces, and without those of a table's frame."""
    lines = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    return [line for line in lines if line.strip("─ ")]


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


def test_a_run_is_told_beside_native(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(RUN)
    assert lines_of(capsys) == [
        "3 ranks, 2 KiB, MPICH 5: correct, checked against numpy",
        "median quartiles least",
        "plan 3 µs 2 µs to 5 µs 1 µs",
        "native 4 µs 3 µs to 8 µs 2.5 µs",
        "ratio 0.75, quartiles 0.5 to 1.25, over 7 repetitions; the slowest rank of each counts",
    ]
    print_run(RUN | {"correct": None, "ranks_per_core": 2})
    first, *_, last = lines_of(capsys)
    assert first == "3 ranks, 2 KiB, MPICH 5: not checked"
    assert "core" in last
    wrong = {"rank": 1, "element": 4, "got": "5", "expected": "6", "n_wrong": 2}
    print_run(RUN | {"correct": False, "first_wrong": wrong})
    assert lines_of(capsys)[0] == (
        "3 ranks, 2 KiB, MPICH 5: WRONG: rank 1, element 4: got 5, expected 6 (2 wrong in all)"
    )


def test_a_program_is_told_beside_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    print_program_run(RUN)
    assert lines_of(capsys) == [
        "3 ranks, MPICH 5: correct, checked against numpy",
        "median quartiles least",
        "this program 3 µs 2 µs to 5 µs 1 µs",
        "steps one after another, the best plan of each 6 µs 5 µs to 9 µs 4.5 µs",
        "steps one after another, MPI's own collectives 4 µs 3 µs to 8 µs 2.5 µs",
        "ratio 0.5 to the plans of the steps, 0.75 to MPI's own collectives, over 7 repetitions; "
        "the slowest rank counts",
    ]
    print_program_run(RUN | {"correct": None})
    assert lines_of(capsys)[0] == "3 ranks, MPICH 5: not checked"
    wrong = {"rank": 1, "buffer": "x", "element": 4, "got": "5", "expected": "6"}
    print_program_run(RUN | {"correct": False, "first_wrong": wrong})
    assert lines_of(capsys)[0] == "3 ranks, MPICH 5: WRONG: rank 1, x[4]: got 5, expected 6"


ROWS = [
    {"bytes": n_bytes, "median_s": s, "mean_s": 2 * s, "ci95_s": (s / 2, 3 * s), "min_s": s / 4}
    for n_bytes, s in ((64, 4e-6), (64, 8e-6), (1024, 4e-5))
]


def test_statistics_are_those_of_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["plan", "native", "plan"]
    print_statistics(64, ROWS, names, {"bytes": lambda row: f"{row['bytes']} of them"})
    assert lines_of(capsys) == [
        "64 B median mean 95 % of the median least bytes",
        "plan 4 µs 8 µs 2 µs to 12 µs 1 µs 64 of them",
        "native 8 µs 16 µs 4 µs to 24 µs 2 µs 64 of them",
    ]
    print_statistics(1024, ROWS, names, {})
    assert lines_of(capsys)[1:] == ["plan 40 µs 80 µs 20 µs to 120 µs 10 µs"]


def test_each_name_has_a_line_through_its_medians_with_its_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = keep_figures(monkeypatch)
    names = ["plan", "native", "plan"]
    plot_rows(tmp_path / "rows.png", ROWS, names, title="a title", size_label="bytes")
    (axes,) = figures[0].axes
    assert (axes.get_title(loc="left"), axes.get_xlabel()) == ("a title", "bytes")
    plan, native = axes.containers
    assert [one.get_label() for one in (plan, native)] == ["plan", "native"]
    line, _, (bars,) = plan.lines  # type: ignore[attr-defined]
    assert line.get_xydata().tolist() == [[64, 4e-6], [1024, 4e-5]]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [pytest.approx([2e-6, 12e-6]), pytest.approx([2e-5, 12e-5])]


def test_a_prediction_compares_the_whole_and_each_phase(tmp_path: Path) -> None:
    """Here all measured times are twice the simulated ones."""
    spec = make_spec("allreduce", "ring", 0, {"nodes": 2, "ranks_per_node": 2}, count=100)
    plan = compile_plan(spec)
    timeline = simulate(plan, spec.machine.network)
    twice = TaskTimes(2 * timeline.start_ns, 2 * timeline.end_ns, np.array([1e-3, 2e-3]), 1e-7)
    report = prediction_report(timeline, twice)
    assert report["predicted_s"] == pytest.approx(timeline.makespan_s)
    assert report["measured_s"] == pytest.approx(2 * timeline.makespan_s)
    assert report["prediction_error"] == pytest.approx(-0.5)
    assert [phase["error"] for phase in report["phases"]] == pytest.approx(
        [-0.5] * len(report["phases"])
    )
    assert report["phases"] == compare_phases(
        plan, (twice.start_ns, twice.end_ns), (timeline.start_ns, timeline.end_ns)
    )
    assert (report["recorded_makespans_s"], report["clock_error_s"]) == ([1e-3, 2e-3], 1e-7)

    write_both(tmp_path / "both.json", timeline, twice)
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    layer = {
        one["pid"]: one["args"]["name"].split()[0]
        for one in events
        if one["name"] == "process_name"
    }
    assert set(layer.values()) == {"simulated", "measured"}
    ends = dict.fromkeys(layer.values(), 0.0)
    for one in events:
        if one["ph"] == "X":
            ends[layer[one["pid"]]] = max(ends[layer[one["pid"]]], one["ts"] + one["dur"])
    assert ends["simulated"] == pytest.approx(timeline.makespan_s * 1e6, abs=1e-3)
    assert ends["measured"] == pytest.approx(2 * timeline.makespan_s * 1e6, abs=1e-3)
