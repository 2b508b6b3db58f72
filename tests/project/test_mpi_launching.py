"""Tests of what runs a second time: a launcher that could not start, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_launching import NOT_LAUNCHED, run

FAILS_ONCE = """
import pathlib, sys
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
sys.exit(sys.argv[2] if len(runs.read_text()) == 1 else 0)
"""


@pytest.mark.parametrize(
    ("said", "status", "n_runs"),
    [(f"{NOT_LAUNCHED}. We cannot continue.", 0, 2), ("wrong result", 1, 1)],
)
def test_only_a_launcher_that_did_not_start_runs_again(
    said: str, status: int, n_runs: int, tmp_path: Path
) -> None:
    done = run([sys.executable, "-c", FAILS_ONCE, str(tmp_path / "runs"), said])
    assert done.returncode == status
    assert len((tmp_path / "runs").read_text()) == n_runs
