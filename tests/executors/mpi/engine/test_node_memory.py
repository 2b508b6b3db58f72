"""Plans that share memory inside nodes, on real ranks, with both MPIs."""

from __future__ import annotations

import pytest

from mpi_launching import MPIS, assert_passes, mpirun

SHARING = "sharing.py"


@pytest.mark.parametrize(
    ("n_ranks", "mpi", "every", "first"),
    [
        (3, "mpich", 2, 0),
        (3, "openmpi", 4, 1),
        (4, "mpich", 2, 0),
        (4, "openmpi", 4, 1),
        (6, "mpich", 13, 0),
        (8, "mpich", 23, 3),
    ],
)
def test_all_collectives(n_ranks: int, mpi: str, every: int, first: int) -> None:
    """A part of all each, by both engines, in the caller's buffers and in the plan's own."""
    which = (str(every), str(first))
    assert_passes(mpirun(n_ranks, SHARING, "collectives", *which, mpi=mpi, timeout_s=150))


@pytest.mark.parametrize("mpi", MPIS)
def test_start_after_start(mpi: str) -> None:
    """Late ranks, gates, several plans at once, buffers that outlive them, other plans."""
    assert_passes(mpirun(4, SHARING, "starts", mpi=mpi, timeout_s=150))


def test_without_gates_results_are_wrong() -> None:
    """So that the test above would see it."""
    assert_passes(mpirun(4, SHARING, "ungated"))


def test_ranks_of_one_planned_node_on_several() -> None:
    """MPICH takes every process for a node of its own; all ranks say so in one line."""
    assert_passes(mpirun(3, SHARING, "apart", MPIR_CVAR_NOLOCAL="1"))
