"""Measured runs and their reports, with both MPIs."""

from __future__ import annotations

import pytest

from mpi_launching import MPIS, assert_passes, mpirun


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_reports(n_ranks: int, mpi: str) -> None:
    assert_passes(mpirun(n_ranks, "measuring.py", mpi=mpi))
