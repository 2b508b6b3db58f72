"""``collplan report``: what it writes, and what it refuses in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import RING, CommandLine

RECORDING: dict[str, Any] = {
    "ranks": 4, "bytes": 64, "library": "MPICH", "median_s": 1e-3, "native_median_s": 2e-3,
    "predicted_s": 1e-3, "measured_s": 2e-3, "prediction_error": -0.5,
    "phases": [{"name": "ring", "measured_s": 2e-3, "simulated_s": 1e-3, "error": None}],
}  # fmt: skip


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_a_report_is_written_and_named(collplan: CommandLine, tmp_path: Path) -> None:
    spec, page = write(tmp_path / "ring.yaml", RING), tmp_path / "page.html"
    outcome = collplan("report", spec, "-o", page, "--candidates", "linear", "--json")
    found = outcome.json()
    assert found["bytes"] == page.stat().st_size
    assert list(found["leading"]) == ["8", "64", "512"]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_methods_of_further_specs_are_candidates(collplan: CommandLine, tmp_path: Path) -> None:
    spec = write(tmp_path / "ring.yaml", RING)
    other = write(tmp_path / "mine.yaml", RING | {"algorithms": "recursive_doubling"})
    page = tmp_path / "page.html"
    assert collplan("report", spec, other, "-o", page, "--candidates", "linear").status == 0
    assert "mine" in page.read_text()


def test_a_recording_is_shown(collplan: CommandLine, tmp_path: Path) -> None:
    spec, run = write(tmp_path / "ring.yaml", RING), write(tmp_path / "run.json", RECORDING)
    page = tmp_path / "page.html"
    assert collplan("report", spec, "-o", page, "--measured", run, "--sizes", "64").status == 0
    assert "Predicted beside measured" in page.read_text()


def test_compare_writes_a_report_too(collplan: CommandLine, tmp_path: Path) -> None:
    spec, page = write(tmp_path / "ring.yaml", RING), tmp_path / "page.html"
    assert collplan("compare", spec, "--html", page).status == 0
    assert "Where the time goes" in page.read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phases": [{"name": "x"}]}, "is not what 'collplan run --predict' writes"),
        ({"median_s": "1"}, "is not what"),
        ({"median_s": float("nan")}, "NaN"),
        ({"ranks": 5}, "is of 5 ranks, the spec has 4"),
    ],
)
def test_strange_recordings_are_refused(
    change: dict[str, Any], words: str, collplan: CommandLine, tmp_path: Path
) -> None:
    spec = write(tmp_path / "ring.yaml", RING)
    run = write(tmp_path / "run.json", RECORDING | change)
    page = tmp_path / "page.html"
    assert words in collplan("report", spec, "-o", page, "--measured", run).error()
    assert not page.exists()


def test_specs_of_other_machines_are_refused(collplan: CommandLine, tmp_path: Path) -> None:
    spec = write(tmp_path / "ring.yaml", RING)
    other = write(tmp_path / "other.yaml", RING | {"machine": {"ranks_per_node": 5}})
    error = collplan("report", spec, other, "-o", tmp_path / "page.html").error()
    assert "machine differs from that of" in error


def test_files_that_cannot_be_written_are_refused(collplan: CommandLine, tmp_path: Path) -> None:
    spec = write(tmp_path / "ring.yaml", RING)
    error = collplan("report", spec, "-o", tmp_path / "no" / "page.html").error()
    assert "there is no folder" in error
    assert "would be overwritten" in collplan("report", spec, "-o", spec).error()
    other = write(tmp_path / "other.yaml", RING)
    error = collplan("report", spec, other, "-o", other).error()
    assert "is what SPEC... (2) names, and would be overwritten" in error


@pytest.mark.parametrize("absent", ["prediction_error", "phases", "error", "library"])
def test_an_absent_key_of_a_recording_is_not_null(
    absent: str, collplan: CommandLine, tmp_path: Path
) -> None:
    found = {key: value for key, value in RECORDING.items() if key != absent}
    if absent == "error":
        found["phases"] = [{"name": "ring", "measured_s": 2e-3, "simulated_s": 1e-3}]
    spec, run = write(tmp_path / "ring.yaml", RING), write(tmp_path / "run.json", found)
    line = collplan("report", spec, "-o", tmp_path / "page.html", "--measured", run).error()
    assert "is not what 'collplan run --predict' writes" in line


def test_mistakes_in_the_spec_of_a_recording_name_its_file(
    collplan: CommandLine, tmp_path: Path
) -> None:
    spec = write(tmp_path / "ring.yaml", RING)
    tasks = {"spec": RING | {"decomposition": "auto"}, "start_ns": [], "end_ns": []}
    run = write(tmp_path / "run.json", RECORDING | tasks)
    line = collplan("report", spec, "-o", tmp_path / "page.html", "--measured", run).error()
    assert f"--measured: {run}: spec: " in line
