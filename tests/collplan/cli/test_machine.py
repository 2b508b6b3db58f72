"""Machine files by the command line: of this node, of jobs, of ranks; and calibrations of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collplan.cli.main import main
from collplan.specs.loading import load_machine
from mpi_launching import MPIS, mpi_python, mpiexec_of, run

JOBS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_NODEFILE", "LSB_MCPU_HOSTS", "PE_HOSTFILE")


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JOBS:
        monkeypatch.delenv(name, raising=False)


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_this_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.yaml"
    assert main(["machine", "-o", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    machine = load_machine(str(path))
    assert document["machine"] == machine.model_dump(mode="json")
    assert machine.nodes == 1
    assert document["notes"]["nodes"] == "this node alone"


def test_a_dash_prints_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["machine", "-o", "-"]) == 0
    printed = capsys.readouterr().out
    assert "wrote" not in printed
    assert not list(tmp_path.iterdir())
    (tmp_path / "machine.yaml").write_text(printed)
    assert load_machine("machine.yaml").nodes == 1


def test_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.yaml"
    monkeypatch.setenv("LSB_MCPU_HOSTS", "a 3 b 1")
    assert main(["machine", "-o", str(path)]) == 0
    assert load_machine(str(path)).ranks_per_node == (3, 1)
    assert "# LSF's job on a, b." in capsys.readouterr().out
    monkeypatch.setenv("LSB_MCPU_HOSTS", "a")
    assert main(["machine", "-o", str(path)]) == 2
    assert "LSB_MCPU_HOSTS: 'a' is not a list of hosts" in refusal(capsys)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["-o", "machine.txt"], "-o: machine.txt ends with .txt; a machine file is a .yaml"),
        (["-o", "/nowhere/machine.yaml"], "-o: "),
        (["-o", "machine.yaml", "-n", "0"], "-n"),
        (["-o", "machine.yaml", "--launcher", "no-such-program"], "--launcher: no-such-program"),
    ],
)
def test_bad_input(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["machine", *options]) == 2
    assert problem in refusal(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_calibrate_starts_from_the_ranks_of_a_machine_file(mpi: str, tmp_path: Path) -> None:
    python = str(mpi_python(mpi))
    seen, fitted, raw = (tmp_path / name for name in ("seen.yaml", "here.yaml", "raw.json"))
    mpiexec = [str(mpiexec_of(mpi_python(mpi))), "-n", "2"]
    done = run([*mpiexec, python, "-m", "collplan", "machine", "-o", str(seen)])
    assert done.returncode == 0, done.stderr
    text = seen.read_text().replace("lanes: 1 ", "lanes: [2Gbit, 1Gbit] ")
    text = text.replace("cores: 2 ", "cores: 8 ").replace("numa_domains: 1 ", "numa_domains: 2 ")
    seen.write_text(text)
    calibrate = [python, "-m", "collplan", "calibrate", "--machine", str(seen), "-o", str(fitted)]
    done = run([*calibrate, "--quick", "--measurements", str(raw), "--json"], timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2
    machine, base = load_machine(str(fitted)), load_machine(str(seen))
    for name in ("nodes", "ranks_per_node", "lanes", "cores", "numa_domains", "rank_order"):
        assert getattr(machine, name) == getattr(base, name), name
    assert machine.network.numa != base.network.numa
    before = fitted.read_text()
    fit = [*calibrate, "--fit", str(raw)]
    assert run(fit).returncode == 0
    assert fitted.read_text() == before


@pytest.mark.system
def test_calibrate_refuses_the_machine_of_other_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text("{nodes: 2, ranks_per_node: 1}")
    out = str(tmp_path / "here.yaml")
    done = run([str(mpi_python("mpich")), "-m", "collplan", "calibrate", "--quick",
                "--machine", str(path), "-o", out])  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "has 2 x 1 ranks on its nodes in block order, the ranks here are 1 x 2" in line
    assert main(["calibrate", "-o", out, "--machine", str(path), "--lanes", "2"]) == 2
    assert "--lanes: --machine says how many there are" in refusal(capsys)
    path.write_text("{nodes: 0}")
    assert main(["calibrate", "-o", out, "--machine", str(path)]) == 2
    assert "nodes" in refusal(capsys)
