"""Families of communicators: without a library, one line says why all calls are native."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_launching import MPIS, assert_passes, mpirun


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_without_a_compiler_calls_are_native_and_one_line_says_so(mpi: str, tmp_path: Path) -> None:
    """The cache has no library either, as for a first program on a machine without a wheel."""
    nowhere = {"PATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "CC": ""}
    done = mpirun(2, "drop_in.py", "check_repeated_calls", mpi=mpi, **nowhere)
    assert_passes(done)
    lines = [line for line in done.stderr.splitlines() if line.startswith("collplan: ")]
    assert len(lines) == 1
    assert "no C compiler" in lines[0]
    assert lines[0].endswith("; all collectives are native")
