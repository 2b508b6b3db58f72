"""The executor on plans written by hand, under both MPIs."""

from __future__ import annotations

import pytest

from mpi_launching import MPIS, assert_passes, mpirun


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("way", ["compiled", "python"])
@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_plans_by_hand(n_ranks: int, way: str, mpi: str) -> None:
    assert_passes(mpirun(n_ranks, "by_hand.py", way, mpi=mpi))


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_compiled_beside_python(n_ranks: int, mpi: str) -> None:
    assert_passes(mpirun(n_ranks, "compiled.py", mpi=mpi))
