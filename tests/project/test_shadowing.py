"""Files and folders where the user stands, of names that collplan or Python imports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from command_line import RING
from folders import PROGRAMS, ROOT
from mpi_launching import HANG_S, mpi_environment, mpi_python

NAMES = ("specs", "planner", "executors", "random", "json", "numpy", "mpi4py", "numba", "typer")
TRAP = "raise SystemExit('a file of the user was executed')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a trap under every name, and a clone of collplan."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(TRAP)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(TRAP)
    (tmp_path / "collplan").symlink_to(ROOT)
    (tmp_path / "spec.yaml").write_text(str(RING))
    return tmp_path


def collplan_in(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder."""
    script = mpi_python("mpich").parent / "collplan"
    environment = {k: v for k, v in mpi_environment().items() if k != "PYTHONPATH"}
    return subprocess.run(
        [str(script), *arguments], cwd=folder, env={**environment, **env},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


@pytest.mark.system
def test_no_file_where_the_user_stands_is_executed_by_run_and_doctor(folder: Path) -> None:
    done = collplan_in(folder, "run", "spec.yaml", "-n", "1", "--repetitions", "1")
    assert done.returncode == 0, done.stderr
    assert "correct, checked against numpy" in done.stdout
    done = collplan_in(folder, "doctor")
    assert "launch of 2 ranks" in done.stdout, done.stderr
    assert "executed" not in done.stdout + done.stderr


@pytest.mark.system
def test_no_file_where_the_user_stands_is_executed_by_tune_and_exec(folder: Path) -> None:
    little = ["--sizes", "64", "--at-most", "1", "--least", "6", "--most", "6", "--seconds", "0.1"]
    done = collplan_in(folder, "tune", "spec.yaml", "-n", "1", "-o", "table.yaml", *little)
    assert done.returncode == 0, done.stderr
    # The program's own folder is not this one, so that it may import mpi4py.
    program = str(PROGRAMS / "unchanged.py")
    done = collplan_in(folder, "exec", "--table", "table.yaml", "-n", "1", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unchanged mpi4py")


@pytest.mark.system
def test_folders_of_our_names_on_pythonpath_are_the_users(tmp_path: Path) -> None:
    for name in ("specs", "planner", "executors"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "spec.yaml").write_text(str(RING))
    arguments = ["run", "spec.yaml", "-n", "1", "--repetitions", "1"]
    done = collplan_in(tmp_path, *arguments, PYTHONPATH=f"{tmp_path}{os.pathsep}")
    assert done.returncode == 0, done.stderr
