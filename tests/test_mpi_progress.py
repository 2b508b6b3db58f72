"""Background tasks in threads on communication cores, under both MPIs."""

from __future__ import annotations

import re

import pytest

from mpi_launching import assert_passes, mpirun


@pytest.mark.parametrize(("n_ranks", "mpi", "n_starts"), [(2, "openmpi", 23), (3, "mpich", 5)])
def test_background(n_ranks: int, mpi: str, n_starts: int) -> None:
    """Over a thousand overlapped starts of 44 plans, and all that may come between and after."""
    assert_passes(mpirun(n_ranks, "progress.py", str(n_starts), mpi=mpi))


def test_a_rank_that_does_not_start() -> None:
    """Who waits for a thread says what that waits for."""
    result = mpirun(2, "progress_ends.py", "stalls")
    assert result.returncode != 0
    assert re.search(r"rank 1: recv from 0 tag \d+ .* has not arrived", result.stderr)


def test_mpi_that_lets_in_one_thread() -> None:
    level = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    result = mpirun(2, "progress_ends.py", "few_may_call_mpi", **level)
    assert_passes(result)
    # Else there was nothing to test.
    assert "thread level 2" in result.stdout
