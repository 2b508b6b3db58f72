"""``collplan calibrate --from``: machine files of measurements, and bad files of measurements."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collplan.cli.main import main
from collplan.fitting.cluster_model import CountedPoints
from collplan.fitting.reading import read_points
from collplan.fitting.terms import waits_of
from collplan.specs.loading import load_machine

HEADER = "system,job,collective,library,nodes,ranks_per_node,elements,algorithm,median_us\n"
SIZES = tuple(2**power for power in range(3, 23))
ALGORITHMS = ("ring_ompi", "recursive_doubling_ompi", "rabenseifner_ompi")
POINTS = 3 * len(SIZES) * len(ALGORITHMS)


def table_of(times: Callable[[int], float]) -> str:
    """Return a CSV file of PICO's columns with a time per row."""
    lines = []
    for nodes in (4, 8, 16):
        for elements in SIZES:
            for name in ALGORITHMS:
                row = f"leonardo,job{nodes},allreduce,ompi,{nodes},1,{elements},{name}"
                lines.append(f"{row},{times(len(lines)):.4f}")
    return HEADER + "\n".join(lines) + "\n"


def with_latency(path: Path, factor: float) -> None:
    """Write a file whose messages between nodes take `factor` times as long as in the preset."""
    path.write_text(table_of(lambda row: row + 1.0))
    counted = CountedPoints.of(read_points([path]).points)
    costs = counted.starts.copy()
    costs[:, waits_of(2)] *= factor
    times = ((counted.counts * costs).sum(axis=1) * 1e-3).tolist()
    path.write_text(table_of(lambda row: float(times[row])))


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_machine_file_states_sources_intervals_and_what_is_not_determined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "times.csv", tmp_path / "machine.yaml"
    with_latency(source, 3.0)
    assert main(["calibrate", "--from", str(source), "-o", str(output), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {one["name"]: one for one in document["parameters"]}
    latency = found["network.network.L_ns"]
    assert latency["method"] == "fitted"
    assert latency["interval"][0] <= latency["value"] <= latency["interval"][1]
    assert latency["value"] > 1.5 * load_machine("leonardo").network.network.L_ns
    assert "not determined" in found["network.numa.L_ns"]["method"]
    assert document["cross_validation"]["points"] == document["points"] == POINTS
    text = output.read_text()
    assert f"fitted to {source}" in text
    assert f"{POINTS} points of 3 jobs on 4 to 16 nodes" in text
    assert "Cross-validated" in text
    machine = load_machine(str(output))
    assert np.isclose(machine.network.network.L_ns, latency["value"])


def test_the_same_file_gives_the_same_machine(tmp_path: Path) -> None:
    source, outputs = tmp_path / "times.csv", [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    with_latency(source, 2.0)
    for output in outputs:
        assert main(["calibrate", "--from", str(source), "-o", str(output)]) == 0
    assert outputs[0].read_text() == outputs[1].read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table_of(lambda row: 5.0), f"all {POINTS} times are 5e-06 s"),
        (HEADER + "leonardo,a,allreduce,ompi,4,1,64,ring_ompi,7\n", "has 1 usable points"),
        (table_of(lambda row: row + 1.0).replace("elements", "bytes", 1), "no column 'elements'"),
        (table_of(lambda row: 1e-3 * (row + 1)), "check the unit of the column"),
        ("what is this\n", "does not say where ranks were; give the machine by --machine"),
        (table_of(lambda row: row + 1.0).replace("allreduce", "bogus"), "can be planned"),
    ],
)
def test_bad_measurements_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    source = tmp_path / "times.csv"
    source.write_text(text)
    assert main(["calibrate", "--from", str(source), "-o", str(tmp_path / "m.yaml")]) == 2
    assert message in refusal(capsys)
    assert not (tmp_path / "m.yaml").exists()


def test_one_of_several_systems_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "times.csv"
    half = table_of(lambda row: row + 1.0)
    source.write_text(half + half.partition("\n")[2].replace("leonardo", "lumi"))
    options = ["calibrate", "--from", str(source), "-o", str(tmp_path / "m.yaml")]
    assert main(options) == 2
    assert "name one by --system: leonardo, lumi" in refusal(capsys)
    assert main([*options, "--system", "lumy"]) == 2
    assert "--system: 'lumy' has no points; did you mean 'lumi'" in refusal(capsys)
    assert main([*options, "--system", "lumi"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quick"], "--quick: says what to measure, --from measures nothing; leave it"),
        (["-n", "4"], "-n: says what to measure, --from measures nothing; leave it"),
    ],
)
def test_options_of_measuring_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    base = ["calibrate", "--from", str(tmp_path / "x.csv"), "-o", str(tmp_path / "m.yaml")]
    assert main([*base, *options]) == 2
    assert message in refusal(capsys)


def test_hosts_without_measurements_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--system", "lumi", "-o", str(tmp_path / "m.yaml")]) == 2
    assert "--system: says where measurements are from; give them by --from" in refusal(capsys)
