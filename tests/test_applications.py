"""The applications of examples/: each finds what numpy finds, and notices where it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mpi_launching import REPO, assert_passes, mpi_python, mpiexec_of, mpirun, run

EXAMPLES = REPO / "examples"


def application(mpi: str, n_ranks: int, name: str, *arguments: str) -> dict[str, Any]:
    """Run a program of examples/ and return what it reports."""
    python = mpi_python(mpi)
    command = [str(mpiexec_of(python)), "-n", str(n_ranks), str(python), "-m", "mpi4py"]
    done = run([*command, str(EXAMPLES / f"{name}.py"), "--json", *arguments])
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert isinstance(facts, dict)
    assert facts["correct"] is True
    assert facts["ranks"] == n_ranks
    assert 0 < facts["communication_s"] < facts["total_s"]
    return facts


# 1001 unknowns go on 3 ranks with a block that is not full, 5 on 3 ranks with one of 1.
@pytest.mark.parametrize(
    ("form", "unknowns"), [("row", 5), ("column-allreduce", 1001), ("column-reduce", 1001)]
)
def test_jacobi_finds_what_one_process_finds(form: str, unknowns: int) -> None:
    facts = application("mpich", 3, "jacobi", "--form", form, "--unknowns", str(unknowns))
    assert 5 < facts["iterations"] < 40


@pytest.mark.parametrize("stages", [2, 5])
def test_adams_converges_with_as_many_orders_as_stages(stages: int) -> None:
    arguments = ("--stages", str(stages), "--grid", "7", "--steps", "60")
    facts = application("mpich", 3, "pab", *arguments)
    assert abs(facts["order"] - stages) < 0.25


@pytest.mark.parametrize(
    ("mpi", "grid", "shape"),
    [("mpich", "4x1", "9x10x5"), ("mpich", "2x2", "3x5x7"), ("openmpi", "1x4", "2x3x6")],
)
def test_fft_transforms_any_extents_on_any_grid(mpi: str, grid: str, shape: str) -> None:
    application(mpi, 4, "fft3d", "--grid", grid, "--shape", shape)


def test_a_mistake_in_any_of_them_is_noticed() -> None:
    result = mpirun(2, "broken_applications.py")
    assert_passes(result)
    assert result.stdout.count('"correct": false') == 3
