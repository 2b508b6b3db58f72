"""Plans that share memory inside nodes, on real ranks, with both MPIs."""

from __future__ import annotations

import pytest

from folders import HELPERS
from mpi_launching import assert_passes, mpirun

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
sharing = pytest.importorskip("sharing")
PROGRAM = str(HELPERS / "sharing.py")


@pytest.mark.ranks(1, 4)
@pytest.mark.parametrize(
    "case",
    [
        "barriers_hold",
        "mpi_moves_beside",
        "several_at_once",
        "buffers_outlive_their_plan",
    ],
)
def test_start_after_start(comm: MPI.Intracomm, case: str) -> None:
    """Late ranks, several plans at once, buffers that outlive them."""
    sharing.run(comm, case)


@pytest.mark.ranks(4)
def test_programs_of_other_plans_are_refused(comm: MPI.Intracomm) -> None:
    sharing.run(comm, "misfits")


@pytest.mark.ranks(4)
def test_late_ranks_wait_at_gates(comm: MPI.Intracomm) -> None:
    sharing.run(comm, "gates", True)


@pytest.mark.ranks(4)
def test_without_gates_results_are_wrong(comm: MPI.Intracomm) -> None:
    """So that the test above would see it."""
    sharing.run(comm, "gates", False)


@pytest.mark.system
def test_ranks_of_one_planned_node_on_several() -> None:
    """MPICH takes every process for a node of its own; all ranks say so in one line."""
    assert_passes(mpirun(3, PROGRAM, MPIR_CVAR_NOLOCAL="1"))
