"""The comparison with real clusters: its options, its divisions of jobs, and its figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from folders import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

import real_clusters

HEADER = "system,job,collective,library,nodes,ranks_per_node,elements,algorithm,median_us\n"
FIGURES = {"time_error_median", "time_error_p90", "within_10", "loss_p90", "coverage_90"}


def write_times(path: Path, system: str, nodes: tuple[int, ...]) -> Path:
    lines = [
        f"{system},job{n},allreduce,ompi,{n},1,{elements},{name},{2.0 * n + factor * elements / 99}"
        for n in nodes
        for elements in (64, 4096, 65536)
        for name, factor in (("ring_ompi", 1.0), ("recursive_doubling_ompi", 1.5))
    ]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


def output_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["real_clusters.py", *options])
    assert real_clusters.main() == 0
    return capsys.readouterr().out


def test_small_jobs_are_those_of_few_nodes_or_ranks() -> None:
    assert real_clusters.is_small(32, 128)
    assert not real_clusters.is_small(33, 33)
    assert real_clusters.is_small(2, 12)
    assert not real_clusters.is_small(1, 24)


def test_one_set_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = write_times(tmp_path / "times.csv", "leonardo", (4, 8, 16, 64))
    found = json.loads(output_of(monkeypatch, capsys, "--times", str(times), "--json"))
    assert set(found) >= FIGURES
    assert set(found["schemes"]) == {"leave one job out", "small predicts large"}
    large = found["schemes"]["small predicts large"]["all terms"]
    assert (large["points"], large["cases"]) == (6, 3)
    assert set(large["by_system"]) == {"leonardo"}


def test_a_system_without_points_to_fit_to_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = write_times(tmp_path / "fit.csv", "lumi", (4, 8, 16))
    held = write_times(tmp_path / "held.csv", "marenostrum5", (4, 64))
    options = ["--fit-times", str(fitted), "--times", str(held)]
    found = json.loads(output_of(monkeypatch, capsys, *options, "--json"))
    assert set(found) >= FIGURES
    assert found["without_points"] == ["marenostrum5"]
    assert found["points"] == 12
    assert "marenostrum5 (12)" in output_of(monkeypatch, capsys, *options)


def test_each_term_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = write_times(tmp_path / "times.csv", "leonardo", (4, 8, 16))
    options = ["--times", str(times), "--terms", "--json"]
    found = json.loads(output_of(monkeypatch, capsys, *options))
    models = found["schemes"]["leave one job out"]
    assert {f"without {title}" for title in real_clusters.TERMS} < set(models)
    assert {one["points"] for one in models.values()} == {18}
