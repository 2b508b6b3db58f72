"""Designs of alltoall on real ranks, with both MPIs."""

from __future__ import annotations

import pytest

from mpi_launching import assert_passes, mpirun


@pytest.mark.parametrize(("n_ranks", "mpi", "every"), [(6, "mpich", 1), (5, "openmpi", 3)])
def test_every_design(n_ranks: int, mpi: str, every: int) -> None:
    """By both engines, whole plans and single programs, packed in every way."""
    assert_passes(mpirun(n_ranks, "exchanging.py", str(every), mpi=mpi, timeout_s=150))
