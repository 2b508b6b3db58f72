"""Plans that share memory inside nodes, on real ranks, with both MPIs."""

from __future__ import annotations

import pytest

from folders import HELPERS
from mpi_launching import assert_passes, mpirun

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
sharing = pytest.importorskip("sharing")
PROGRAM = str(HELPERS / "sharing.py")
EVERY = 4
"""Number of collectives of which one is run; which one, the number of ranks decides."""


@pytest.mark.ranks(2, 3, 4)
def test_all_collectives(comm: MPI.Intracomm) -> None:
    """By both kinds of reductions, in the caller's buffers and in the plan's own."""
    assert sharing.run(comm, "all_collectives", EVERY, comm.size % EVERY) > 5


@pytest.mark.parametrize(("n_ranks", "every", "first"), [(6, 13, 0), (8, 23, 3)])
def test_collectives_on_more_ranks_than_a_pool_has(n_ranks: int, every: int, first: int) -> None:
    which = (str(every), str(first))
    assert_passes(mpirun(n_ranks, PROGRAM, "collectives", *which, timeout_s=150))


@pytest.mark.ranks(4)
@pytest.mark.parametrize(
    "case", ["barriers_hold", "several_at_once", "buffers_outlive_their_plan", "misfits"]
)
def test_start_after_start(comm: MPI.Intracomm, case: str) -> None:
    """Late ranks, several plans at once, buffers that outlive them, other plans."""
    sharing.run(comm, case)


@pytest.mark.ranks(4)
def test_late_ranks_wait_at_gates(comm: MPI.Intracomm) -> None:
    sharing.run(comm, "gates", True)


@pytest.mark.ranks(4)
def test_without_gates_results_are_wrong(comm: MPI.Intracomm) -> None:
    """So that the test above would see it."""
    sharing.run(comm, "gates", False)


def test_ranks_of_one_planned_node_on_several() -> None:
    """MPICH takes every process for a node of its own; all ranks say so in one line."""
    assert_passes(mpirun(3, PROGRAM, "apart", MPIR_CVAR_NOLOCAL="1"))
