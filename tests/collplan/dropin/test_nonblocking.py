"""Non-blocking forms of the drop-in under both MPIs, and the tables they choose from."""

from __future__ import annotations

import pytest

from check_names import checks_of
from mpi_launching import assert_passes, mpirun

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
run_check = pytest.importorskip("drop_in_calls").run_check


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("nonblocking.py"))
def test_nonblocking_forms_leave_what_native_mpi_leaves(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "nonblocking.py", check)


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("nonblocking_shared.py"))
def test_plans_through_shared_memory_serve_when_ranks_have_made_it(
    comm: MPI.Intracomm, check: str
) -> None:
    run_check(comm, "nonblocking_shared.py", check)


@pytest.mark.system
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_without_threads_all_is_native_and_says_why(mpi: str) -> None:
    level = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    assert_passes(mpirun(2, "nonblocking_alone.py", mpi=mpi, **level))
