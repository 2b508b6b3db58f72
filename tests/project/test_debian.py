"""The commands on Debian's own MPICH and Open MPI, which behave unlike those of the wheels."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from folders import PROGRAMS
from mpi_launching import DEBIAN, mpi_python, mpiexec_of, run

STARTS = {"collplan": "3", "mpiexec": "2"}
"""Ways to start ranks; collplan itself sets what more ranks than cores need."""

pytestmark = [pytest.mark.system, pytest.mark.parametrize("mpi", DEBIAN)]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    collective = {"kind": "allreduce", "count": 256, "datatype": "uint64", "op": "min"}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"machine": {"ranks_per_node": 4}, "collective": collective}))
    return path


def collplan(mpi: str, start: str, command: str, *options: object) -> subprocess.CompletedProcess:
    """Run a command on ranks, and see that it is content."""
    python = mpi_python(mpi)
    n_ranks = STARTS[start]
    line = [str(python), "-m", "collplan", command, "-n", n_ranks, *map(str, options)]
    if start == "mpiexec":
        line = [str(mpiexec_of(python)), "-n", n_ranks, *line]
    done = run(line, bare=start == "collplan")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_doctor_finds_nothing_wrong(mpi: str, tmp_path: Path) -> None:
    python = mpi_python(mpi)
    # The first on PATH, as where the other one is not installed.
    (tmp_path / "mpiexec").write_text(f'#!/bin/sh\nexec {mpiexec_of(python)} "$@"\n')
    (tmp_path / "mpiexec").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = run([str(python), "-m", "collplan", "doctor", "--json"], bare=True, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["name"]: finding["found"] for finding in json.loads(done.stdout)["findings"]}
    assert found["MPI_MIN"] == (
        "right for int64 and uint64"
        if least_of_large_numbers(python) == 1
        else "compares uint64 as if it were signed, a known defect of this release"
    )


def least_of_large_numbers(python: Path) -> int:
    """Return what MPI_MIN of this MPI makes of 1 and of a number that is negative if signed."""
    code = (
        "import numpy; from mpi4py import MPI; least = numpy.array([1], numpy.uint64); "
        "MPI.MIN.Reduce_local(numpy.array([2**63 + 5], numpy.uint64), least); print(least[0])"
    )
    done = run([str(mpiexec_of(python)), "-n", "1", str(python), "-c", code])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("start", STARTS)
def test_runs_and_predicts(mpi: str, start: str, spec: Path) -> None:
    done = collplan(mpi, start, "run", spec, "--predict", "--repetitions", 2, "--json")
    document = json.loads(done.stdout)
    assert document["correct"]
    assert document["ranks"] == int(STARTS[start])
    assert document["measured_s"] > 0


def test_tunes_and_executes_by_the_table(mpi: str, spec: Path, tmp_path: Path) -> None:
    start = dict(zip(DEBIAN, STARTS, strict=True))[mpi]
    table = tmp_path / "table.json"
    little = ("--sizes", "1KiB", "--at-most", 1, "--least", 6, "--most", 6, "--seconds", 0.5)
    collplan(mpi, start, "tune", spec, "-o", table, *little)
    done = collplan(mpi, start, "exec", "--table", table, PROGRAMS / "unchanged.py", "word")
    total = sum(range(int(STARTS[start]) + 1))
    assert f"unchanged mpi4py __main__ ['word'] {total:.1f}" in done.stdout


def test_calibrates(mpi: str, tmp_path: Path) -> None:
    start = dict(zip(DEBIAN, reversed(STARTS), strict=True))[mpi]
    done = collplan(mpi, start, "calibrate", "--quick", "-o", tmp_path / "machine.yaml", "--json")
    assert json.loads(done.stdout)["ranks"] == int(STARTS[start])
