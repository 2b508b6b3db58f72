"""Every algorithm on real ranks, with both MPIs, against numpy."""

from __future__ import annotations

import pytest

from mpi_launching import MPIS, assert_passes, mpirun


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 7])
def test_all_algorithms(n_ranks: int, mpi: str) -> None:
    assert_passes(mpirun(n_ranks, "conformance.py", mpi=mpi, timeout_s=600))
