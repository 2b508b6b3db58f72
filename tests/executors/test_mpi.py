"""Every algorithm on real ranks, with both MPIs, against numpy."""

from __future__ import annotations

import pytest

from folders import HELPERS
from mpi_launching import MPIS, assert_passes, mpirun
from oracle import REGULAR

conformance = pytest.importorskip("conformance", reason="mpi4py is not installed")


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("kind", REGULAR)
def test_all_algorithms(comm, kind: str) -> None:
    assert conformance.run_all(comm, kind) > 0


@pytest.mark.parametrize("mpi", MPIS)
def test_all_algorithms_on_more_ranks_than_a_pool_has(mpi: str) -> None:
    """Of the collectives only a part: the ranks share two cores."""
    program = str(HELPERS / "conformance.py")
    assert_passes(mpirun(7, program, mpi=mpi, timeout_s=600))
