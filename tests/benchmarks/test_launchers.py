"""The script that prints which MPIs work with which launchers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from folders import BENCHMARKS
from mpi_launching import mpi_environment, mpi_python

sys.path.insert(0, str(BENCHMARKS))

import launchers


def test_cells_that_do_not_work_have_a_line() -> None:
    works = dict.fromkeys(launchers.COMMANDS)
    broken = works | {"run": "exit 2: no MPI"}
    text = launchers.to_markdown({"MPICH wheel": {"srun": works, "in a job": broken}})
    lines = text.splitlines()
    assert lines[2] == "| MPICH wheel | srun |" + " works |" * len(works)
    others = " works |" * (len(works) - 2)
    assert lines[3] == "| MPICH wheel | in a job | works | **no** |" + others
    assert lines[4:] == ["MPICH wheel, in a job, run: exit 2: no MPI"]


@pytest.mark.system
@pytest.mark.parametrize("start", ["own launcher", "plain mpiexec"])
def test_a_cell_works_only_if_the_command_does(start: str, tmp_path: Path) -> None:
    python = mpi_python("mpich")
    (tmp_path / "spec.yaml").write_text(launchers.SPEC % 2)
    words, wanted = launchers.run(tmp_path, 2)
    line = launchers.STARTS[start](python, "pmi2", 2, words)
    assert launchers.try_cell(line, wanted, tmp_path, mpi_environment()) is None
    (tmp_path / "spec.yaml").write_text("machine: {nodes: 0}")
    why = launchers.try_cell(line, wanted, tmp_path, mpi_environment())
    assert why is not None
    assert why.startswith("exit 2")


def test_unknown_mpis_are_refused() -> None:
    command = [sys.executable, launchers.__file__, "--mpi", "LAM"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--mpi: 'LAM' is none of MPICH wheel" in done.stderr
