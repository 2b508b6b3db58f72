"""Schedules of MSCCL on the command line: converted, proved, priced, drawn, run and exported."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from command_line import CommandLine
from folders import ROOT
from mpi_launching import mpi_python, run

ARCHIVE = ROOT / "tests/planner/formats/msccl/examples.tar.xz"


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def example(folder: Path, name: str) -> Path:
    """Write an example of MSCCL's own repositories; return its path."""
    path = folder / name
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile(name)
        assert file is not None
        path.write_bytes(file.read())
    return path


@pytest.mark.parametrize(
    ("name", "size"),
    [("ndv4_ap2ll.xml", "32KiB"), ("ndv5_ag-16m.xml", "4KiB"), ("ndv4_a2a2ll.xml", "1KiB")],
)
def test_algorithms_of_others_are_proved_priced_and_drawn(
    collplan: CommandLine, name: str, size: str
) -> None:
    plan = collplan.folder / "x.plan"
    made = collplan("convert", example(collplan.folder, name), "-o", plan, "--size", size)
    assert made.status == 0, made
    assert made.out.startswith("proved: all")
    assert "left out, as only MSCCL's runtime needs them: " in made.out
    assert "thread blocks, " in made.out
    assert "proved" in collplan("verify", plan).out
    assert collplan("cost", plan, "--json").json()["makespan_s"] > 0
    assert collplan("draw", plan, "-o", collplan.folder / "x.svg").status == 0
    assert "8 ranks" in collplan("show", plan).out


@pytest.mark.system
def test_an_allreduce_of_others_runs(collplan: CommandLine) -> None:
    name = "tools_allreduce_a100_ncv4_v2-4_1.xml"
    plan, source = collplan.folder / "x.plan", example(collplan.folder, name)
    made = collplan("convert", source, "-o", plan, "--size", "32KiB")
    assert made.status == 0, made
    command = ["-m", "collplan", "run", str(plan), "--repetitions", "2"]
    done = run([str(mpi_python("mpich")), *command])
    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout
    assert "correct, checked against numpy" in done.stdout


def test_what_is_too_large_to_be_proved_is_not_called_proved(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collplan.planner.passes.registry.VERIFY_LIMIT", 1)
    plan, source = collplan.folder / "x.plan", example(collplan.folder, "ndv5_ag-16m.xml")
    made = collplan("convert", source, "-o", plan, "--size", "4KiB")
    assert made.status == 0, made
    assert made.out.startswith("read: allgather")
    assert f"{source}: is not proved here, as it has " in made.err
    assert "proved:" not in made.out
    document = collplan("convert", source, "-o", plan, "--size", "4KiB", "--json").json()
    assert document["proved"] is False


def test_round_trip_by_commands(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 2})
    xml, plan = collplan.folder / "x.xml", collplan.folder / "x.plan"
    options = ["--between", "0,1MiB", "--protocol", "LL"]
    written = collplan("export", spec, "--to", "msccl", "-o", xml, *options, "--json").json()
    assert (written["n_chunks"], written["notes"]) == (4, [])
    machine = collplan.folder / "machine.yaml"
    machine.write_text("{nodes: 2, ranks_per_node: 2}")
    options = ["--machine", str(machine), "--size", "64B", "--datatype", "int32", "--json"]
    found = collplan("convert", xml, "-o", plan, *options).json()
    assert found["left_out"] == {
        "thread_blocks": 12,
        "channels": 1,
        "protocol": "LL",
        "min_bytes": 0,
        "max_bytes": 1 << 20,
    }
    prices = [collplan("cost", source, "--json").json()["makespan_s"] for source in (spec, plan)]
    assert prices[0] == prices[1]


def test_wrong_schedules_are_refuted_with_status_1(collplan: CommandLine) -> None:
    good = example(collplan.folder, "ncv4_ag_hier_4_LL.xml")
    text = good.read_text()
    plan = collplan.folder / "x.plan"
    wrong = collplan.folder / "wrong.xml"
    wrong.write_text(text.replace('srcoff="1" dstbuf="o"', 'srcoff="0" dstbuf="o"'))
    refuted = collplan("convert", wrong, "-o", plan)
    assert refuted.status == 1
    assert refuted.out.startswith(f"undefined: {wrong}: rank ") or "holds" in refuted.out
    wrong.write_text(text.replace('depid="-1" deps="-1"', 'depid="0" deps="1"', 1))
    stuck = collplan("convert", wrong, "-o", plan, "--json")
    assert (stuck.status, stuck.json()["kind"]) == (1, "deadlock")
    assert not plan.exists()


def test_mistakes(collplan: CommandLine) -> None:
    good = example(collplan.folder, "ncv4_ag_hier_4_LL.xml")
    plan = collplan.folder / "x.plan"

    def error(*options: str, source: Path = good) -> str:
        return collplan("convert", source, "-o", plan, *options).error()

    assert "count: 3 elements" in error("--size", "12")
    assert "--size: 13 bytes are not 0 to" in error("--size", "13")
    assert "--datatype: 'frob' is not a datatype" in error("--datatype", "frob")
    assert "machine: has 64 ranks" in error("--machine", "knl64")
    assert "no such file" in error(source=collplan.folder / "none.xml").lower()
    broken = collplan.folder / "broken.xml"
    broken.write_text(good.read_text()[:3000])
    assert f"{broken}:41: is no XML" in error(source=broken)
    spec = collplan.write_spec()
    options = ["--to", "msccl", "-o", collplan.folder / "x.xml"]
    for between in ("1", "4,1", "a,b"):
        assert "--between: " in collplan("export", spec, *options, "--between", between).error()
    scan = collplan.write_spec(collective={"kind": "scan", "count": 4}, algorithms="auto")
    assert "scan is no collective of MSCCL" in collplan("export", scan, *options).error()
